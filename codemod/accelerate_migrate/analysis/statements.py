"""What running a statement does to the names in sight, and whether control can go on behind it.

Straight-line code is flow-sensitive, branches join, loops go to a fixpoint.
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence

from accelerate_migrate.analysis import library, processes
from accelerate_migrate.analysis.atoms import (
    UNKNOWN,
    ClassRef,
    DeviceValue,
    FunctionRef,
    Library,
    ModuleRef,
    Object,
    Parameters,
    Role,
    Share,
)
from accelerate_migrate.analysis.expressions import Expressions
from accelerate_migrate.analysis.frames import Arguments, Frame
from accelerate_migrate.analysis.modules import Module, Program
from accelerate_migrate.analysis.settings import is_exec, overridden
from accelerate_migrate.analysis.values import ANY, BOTTOM, NONE, Value, element, flatten, is_device, sequence, value

LOOP_PASSES = 6


class Statements(Expressions):
    """Runs statements; each kind returns whether control can go on behind it."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._runners: dict[type[ast.stmt], Callable[..., object] | None] = {}

    @abstractmethod
    def enter_module(self, module: Module) -> None:
        """Run the body of a module that is imported, if it has not run yet."""

    @abstractmethod
    def run_again(self) -> None:
        """Let what is running now run in every round."""

    def block(self, statements: Sequence[ast.stmt], frame: Frame) -> bool:
        """Run statements in order; false where control never reaches the end."""
        for statement in statements:  # no generator: it would cost stack and time  # noqa: SIM110
            if not self.statement(statement, frame):
                return False
        return True

    def statement(self, node: ast.stmt, frame: Frame) -> bool:
        """Run one statement."""
        kind = type(node)
        try:
            run = self._runners[kind]
        except KeyError:
            run = self._runners[kind] = getattr(self, "_run_" + kind.__name__, None)
        if run is not None:
            return bool(run(node, frame))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.expression(child, frame)
        return True

    def _run_Expr(self, node: ast.Expr, frame: Frame) -> bool:
        self.expression(node.value, frame)
        if isinstance(frame.scope, ast.Module) and is_exec(node.value):
            for name in overridden(frame.module.tree) & frame.env.keys():
                unknown = value(DeviceValue(is_string=True)) if is_device(frame.env[name]) else ANY
                self.bind(name, unknown, frame)
        return True

    def _run_Assign(self, node: ast.Assign, frame: Frame) -> bool:
        result = self.expression(node.value, frame)
        for target in node.targets:
            self.assign(target, self._as_models(target, node.value, result, frame), frame)
        return True

    def _as_models(self, target: ast.expr, made: ast.expr, result: Value, frame: Frame) -> Value:
        """``_as_known``, for each element where a tuple is unpacked."""
        if not isinstance(target, ast.Tuple) or not any(
            self.text(item) in frame.module.parameterised for item in target.elts
        ):
            return self._as_known(target, made, result, frame)
        return sequence(
            self._as_known(item, made, element(result, index), frame) for index, item in enumerate(target.elts)
        )

    def _as_known(self, target: ast.expr, made: ast.expr, result: Value, frame: Frame) -> Value:
        """An unknown call's result by what the file asks of it.

        Only a model has ``parameters()``; what is made from parameters, steps and clears gradients is an optimizer.
        """
        if not (isinstance(target, (ast.Name, ast.Attribute)) and isinstance(made, ast.Call)):
            return result
        if UNKNOWN not in result.atoms or any(isinstance(a, Parameters) for a in result):
            return result
        text, role = self.text(target), None
        given = Arguments([self.values.get(a, BOTTOM) for a in (*made.args, *(k.value for k in made.keywords))])
        if text in frame.module.stepped:
            self.run_again()  # the arguments are seen as all runs together found them
        if text in frame.module.parameterised:
            role = Role.MODEL
        elif text in frame.module.stepped and any(isinstance(a, Parameters) for v in given.all() for a in flatten(v)):
            role = Role.OPTIMIZER
        if role is None:
            return result
        site = self.site(role, made, frame, ast.unparse(made.func))
        if role is Role.OPTIMIZER:
            self.constructed(site, given)
        return value(*(a for a in result if a is not UNKNOWN), Object(site))

    def _run_AnnAssign(self, node: ast.AnnAssign, frame: Frame) -> bool:
        if node.value is not None:
            self.assign(node.target, self.expression(node.value, frame), frame)
        return True

    def _run_AugAssign(self, node: ast.AugAssign, frame: Frame) -> bool:
        self.assign(node.target, self.augmented(node, frame), frame)
        return True

    def _run_Return(self, node: ast.Return, frame: Frame) -> bool:
        frame.returns.append(self.expression(node.value, frame) if node.value else NONE)
        return False

    def _run_Raise(self, node: ast.Raise, frame: Frame) -> bool:
        for part in (node.exc, node.cause):
            if part is not None:
                self.expression(part, frame)
        return False

    def _run_Break(self, node: ast.Break, frame: Frame) -> bool:
        if frame.breaks:
            frame.breaks[-1].append(dict(frame.env))
        return False

    def _run_Continue(self, node: ast.Continue, frame: Frame) -> bool:
        if frame.continues:
            frame.continues[-1].append(dict(frame.env))
        return False

    def _run_If(self, node: ast.If, frame: Frame) -> bool:
        test = self.expression(node.test, frame)
        never = processes.share(test) is Share.NEVER
        return self._branches([[] if never else node.body, node.orelse], frame)

    def _run_Match(self, node: ast.Match, frame: Frame) -> bool:
        self.expression(node.subject, frame)
        for case in node.cases:
            for part in ast.walk(case.pattern):
                name = getattr(part, "name", None)
                if isinstance(name, str):
                    self.bind(name, ANY, frame)
        return self._branches([*(case.body for case in node.cases), []], frame)

    def _branches(self, bodies: Iterable[Sequence[ast.stmt]], frame: Frame) -> bool:
        start, ends = dict(frame.env), []
        for body in bodies:
            frame.env = dict(start)
            if self.block(body, frame):
                ends.append(frame.env)
        frame.env = _join_environments(ends) if ends else start
        return bool(ends)

    def _run_For(self, node: ast.For | ast.AsyncFor, frame: Frame) -> bool:
        iterated = self.expression(node.iter, frame)
        return self._loop(node.body, node.orelse, frame, lambda: self.assign(node.target, element(iterated), frame))

    _run_AsyncFor = _run_For

    def _run_While(self, node: ast.While, frame: Frame) -> bool:
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        return self._loop(node.body, node.orelse, frame, lambda: self.expression(node.test, frame), endless=endless)

    def _loop(
        self,
        body: Sequence[ast.stmt],
        orelse: Sequence[ast.stmt],
        frame: Frame,
        head: Callable[[], object],
        *,
        endless: bool = False,
    ) -> bool:
        frame.breaks.append([])
        frame.continues.append([])
        for _ in range(LOOP_PASSES):
            start = dict(frame.env)
            head()
            ends = [start]
            if self.block(body, frame):
                ends.append(frame.env)
            ends += frame.continues[-1]
            frame.env = _join_environments(ends)
            if frame.env == start:
                break
        breaks = frame.breaks.pop()
        frame.continues.pop()
        if endless:
            if not breaks:
                return False
            frame.env = _join_environments(breaks)
            return True
        alive = self.block(orelse, frame)
        if breaks:
            frame.env = _join_environments([*breaks, *([frame.env] if alive else [])])
        return alive or bool(breaks)

    def _run_With(self, node: ast.With | ast.AsyncWith, frame: Frame) -> bool:
        for item in node.items:
            entered = self.expression(item.context_expr, frame)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, entered, frame)
        return self.block(node.body, frame)

    _run_AsyncWith = _run_With

    def _run_Try(self, node: ast.Try, frame: Frame) -> bool:
        start = dict(frame.env)
        alive = self.block(node.body, frame) and self.block(node.orelse, frame)
        after = frame.env
        thrown = _join_environments([start, after])
        ends = [after] if alive else []
        for handler in node.handlers:
            frame.env = dict(thrown)
            if handler.type is not None:
                self.expression(handler.type, frame)
            if handler.name:
                self.bind(handler.name, ANY, frame)
            if self.block(handler.body, frame):
                ends.append(frame.env)
        frame.env = _join_environments(ends) if ends else thrown
        return self.block(node.finalbody, frame) and bool(ends)

    _run_TryStar = _run_Try

    def _run_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> bool:
        for decorator in node.decorator_list:
            self.expression(decorator, frame)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.expression(default, frame)
        self.bind(node.name, value(FunctionRef(node, frame.module)), frame)
        return True

    _run_AsyncFunctionDef = _run_FunctionDef

    def _run_ClassDef(self, node: ast.ClassDef, frame: Frame) -> bool:
        for part in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
            self.expression(part, frame)
        inner = Frame(frame.module, node, {})
        self.block(node.body, inner)
        self.define_class(node, inner.env)
        self.bind(node.name, value(ClassRef(node, frame.module)), frame)
        return True

    def _run_Import(self, node: ast.Import, frame: Frame) -> bool:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.split(".")[0]
            found = self.program.find(name, frame.module)
            inner = self.program.find(alias.name, frame.module) if name != alias.name else None
            if inner is not None:
                self.enter_module(inner)
                if self.imported.get(alias.name) is not inner:
                    self.imported[alias.name] = inner
                    self.clock.change(alias.name)
            if found is not None and found.path != frame.module.path:
                self.enter_module(found)
                self.bind(alias.asname or name, value(ModuleRef(found)), frame)
            else:
                self.bind(alias.asname or name, value(Library(name)), frame)
        return True

    def _run_ImportFrom(self, node: ast.ImportFrom, frame: Frame) -> bool:
        source = self.program.find(node.module or "", frame.module, node.level) if node.module or node.level else None
        if source is not None:
            self.enter_module(source)
            self.exported[source].update(alias.name for alias in node.names)
        for alias in node.names:
            if alias.name == "*":
                if source is not None:
                    self._import_star(source, frame)
                continue
            bound = alias.asname or alias.name
            if source is None:
                dotted = f"{node.module}.{alias.name}" if node.module else alias.name
                self.bind(bound, ANY if node.level else value(Library(library.canonical(dotted))), frame)
                continue
            known = self.stored(source.tree, alias.name)
            if known is None:
                inner = self.program.find(".".join(filter(None, [node.module, alias.name])), frame.module, node.level)
                if inner is not None:
                    self.enter_module(inner)
                known = value(ModuleRef(inner)) if inner is not None else ANY
            self.bind(bound, known, frame)
        return True

    def _import_star(self, source: Module, frame: Frame) -> None:
        names = self.scope_names(source.tree)
        for name in sorted(names.bound):
            if not name.startswith("_"):
                known = self.stored(source.tree, name)
                self.bind(name, known if known is not None else BOTTOM, frame)
        if names.star_import:
            self.read(source.tree)
            for name in self.starred[source.tree]:
                known = self.stored(source.tree, name)
                self.bind(name, known if known is not None else BOTTOM, frame)


def _join_environments(environments: Sequence[dict[str, Value]]) -> dict[str, Value]:
    if len(environments) == 1:
        return dict(environments[0])
    joined = dict(environments[0])
    for environment in environments[1:]:
        for name, one in environment.items():
            known = joined.get(name)
            if known is None:
                joined[name] = one
            elif known is not one:
                joined[name] = known | one
    return joined

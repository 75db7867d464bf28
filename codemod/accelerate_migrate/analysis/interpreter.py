"""The abstract interpretation: statements, scopes and calls of functions of the program.

Straight-line code is flow-sensitive, branches join, loops go to a fixpoint. A name read from another scope has the
join of everything ever bound to it there, so the whole program is run until those joins stop growing. Functions are
entered at their calls, once for each combination of arguments; functions that nothing calls are entered last, with
arguments of which nothing is known.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from accelerate_migrate.analysis import library
from accelerate_migrate.analysis.expressions import Expressions
from accelerate_migrate.analysis.frames import Arguments, Frame
from accelerate_migrate.analysis.modules import Module, Program
from accelerate_migrate.analysis.scopes import is_decorated
from accelerate_migrate.analysis.values import (
    ANY,
    BOTTOM,
    NONE,
    UNKNOWN,
    ClassRef,
    FunctionRef,
    Library,
    Mapping_,
    ModuleRef,
    Object,
    Parameters,
    Role,
    Sequence_,
    Site,
    Value,
    element,
    join,
    sequence,
    value,
)

MAX_ROUNDS = 4
MAX_CONTEXTS = 8
MAX_CALL_DEPTH = 24
LOOP_PASSES = 6


class Interpreter(Expressions):
    """Runs a program on abstract values and keeps what every expression may be."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._memo: dict[tuple[object, ...], Value] = {}
        self._active: list[ast.AST] = []
        self._contexts: dict[ast.AST, int] = defaultdict(int)
        self._running: set[Module] = set()
        self._done: set[Module] = set()
        self._parameterised: dict[Module, frozenset[str]] = {}

    def run(self) -> None:
        """Interpret the whole program to a fixpoint."""
        for _ in range(MAX_ROUNDS):
            self.start_round()
            self._memo.clear()
            self._contexts.clear()
            self._done.clear()
            for module in self.program.modules:
                self.enter_module(module)
            for module in self.program.modules:
                self._enter_uncalled(module)
            if not self.grew:
                break

    def enter_module(self, module: Module) -> None:
        """Run a module's body, once a round (an import cycle sees what is bound so far)."""
        if module in self._done or module in self._running:
            return
        self._running.add(module)
        frame = Frame(module, module.tree, {"__name__": ANY, "__file__": ANY})
        self.block(module.tree.body, frame)
        self._running.discard(module)
        self._done.add(module)

    def _enter_uncalled(self, module: Module) -> None:
        entered = self._contexts
        for node in module.walk():
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node not in entered:
                owner = None
                scope = module.scope(node)
                if isinstance(scope, ast.ClassDef):
                    made = self.instances(scope)
                    owner = value(*map(Object, made)) if made else ANY
                self.call_function(FunctionRef(node, module, owner), Arguments(unknown=True))

    # ---- functions

    def call_function(self, ref: FunctionRef, arguments: Arguments) -> Value:
        """The value that a call of this function returns."""
        node = ref.node
        if isinstance(node, ast.Lambda):
            return self._call_lambda(ref, node, arguments)
        if self._active.count(node) > 1 or len(self._active) > MAX_CALL_DEPTH:
            return BOTTOM if node in self._active else ANY
        if self._contexts[node] >= MAX_CONTEXTS:
            arguments = Arguments(unknown=True)
        bound = self._bind(ref, node, arguments)
        key = (node, *bound.items())
        if key in self._memo:
            return self._memo[key]
        self._contexts[node] += 1
        self._active.append(node)
        frame = Frame(ref.module, node, bound)
        for name, one in bound.items():
            self.remember(node, name, one)
        alive = self.block(node.body, frame)
        self._active.pop()
        result = join(frame.returns)
        if frame.yields:
            result = value(Sequence_((), join(frame.yields), is_tuple=False))
        elif alive:
            result = result | NONE
        self._memo[key] = result
        return result

    def _call_lambda(self, ref: FunctionRef, node: ast.Lambda, arguments: Arguments) -> Value:
        if len(self._active) > MAX_CALL_DEPTH or node in self._active:
            return ANY
        self._active.append(node)
        result = self.expression(node.body, Frame(ref.module, node, self._bind(ref, node, arguments)))
        self._active.pop()
        return result

    def _bind(
        self, ref: FunctionRef, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, arguments: Arguments
    ) -> dict[str, Value]:
        spec = node.args
        positional = [*spec.posonlyargs, *spec.args]
        given = list(arguments.positional)
        if ref.owner is not None and not is_decorated(node, "staticmethod"):
            given.insert(0, ref.owner)
        keywords = dict(arguments.keywords)
        bound: dict[str, Value] = {}
        defaults = [None] * (len(positional) - len(spec.defaults)) + list(spec.defaults)
        for index, (parameter, default) in enumerate(zip(positional, defaults, strict=True)):
            if index < len(given):
                bound[parameter.arg] = given[index]
            elif parameter.arg in keywords:
                bound[parameter.arg] = keywords.pop(parameter.arg)
            else:
                bound[parameter.arg] = self._missing(ref.module, default, arguments)
        for parameter, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            bound[parameter.arg] = (
                keywords.pop(parameter.arg)
                if parameter.arg in keywords
                else self._missing(ref.module, default, arguments)
            )
        if spec.vararg:
            rest = given[len(positional) :]
            bound[spec.vararg.arg] = value(Sequence_((), ANY)) if arguments.unknown else sequence(rest)
        if spec.kwarg:
            unknown = ANY if arguments.unknown else None
            bound[spec.kwarg.arg] = value(Mapping_(tuple(keywords.items()), unknown))
        return bound

    def _missing(self, module: Module, default: ast.expr | None, arguments: Arguments) -> Value:
        known = self.expression(default, Frame(module, module.tree, {})) if default is not None else BOTTOM
        return known | ANY if arguments.unknown or default is None else known

    def construct(self, ref: ClassRef, node: ast.Call, frame: Frame, arguments: Arguments) -> Value:
        """The value of calling a class of the program: an object of the role its bases give it."""
        role = self.class_role(ref) or Role.INSTANCE
        site = self.site(role, node, frame, ref.node.name, ref)
        self.constructed(site, arguments)
        initialiser = self.class_attribute(ref, "__init__")
        owner = value(Object(site))
        for atom in initialiser.of(FunctionRef):
            self.note_call(node, atom)
            self.call_function(FunctionRef(atom.node, atom.module, owner), arguments)
        return owner

    # ---- statements: each returns whether control can go on behind it

    def block(self, statements: Sequence[ast.stmt], frame: Frame) -> bool:
        """Run statements in order; false where control never reaches the end."""
        return all(self.statement(statement, frame) for statement in statements)

    def statement(self, node: ast.stmt, frame: Frame) -> bool:
        """Run one statement."""
        run = getattr(self, "_run_" + type(node).__name__, None)
        if run is not None:
            return bool(run(node, frame))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.expression(child, frame)
        return True

    def _run_Assign(self, node: ast.Assign, frame: Frame) -> bool:
        result = self.expression(node.value, frame)
        for target in node.targets:
            self.assign(target, self._as_model(target, node.value, result, frame), frame)
        return True

    def _as_model(self, target: ast.expr, made: ast.expr, result: Value, frame: Frame) -> Value:
        """An unknown call's result whose ``parameters()`` the file asks for is a model: nothing else has them."""
        if not (isinstance(target, ast.Name) and isinstance(made, ast.Call) and UNKNOWN in result.atoms):
            return result
        if target.id not in self.parameterised(frame.module) or any(isinstance(a, Parameters) for a in result):
            return result
        site = self.site(Role.MODEL, made, frame, ast.unparse(made.func))
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
        self.expression(node.test, frame)
        return self._branches([node.body, node.orelse], frame)

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
        self.class_bodies[node] = inner.env
        self.bind(node.name, value(ClassRef(node, frame.module)), frame)
        return True

    def _run_Import(self, node: ast.Import, frame: Frame) -> bool:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.split(".")[0]
            found = self.program.find(name, frame.module)
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
            for name in self.starred[source.tree]:
                known = self.stored(source.tree, name)
                self.bind(name, known if known is not None else BOTTOM, frame)

    # ---- what the classes of the program are

    def class_role(self, ref: ClassRef) -> Role | None:
        """The role that the library bases of a class give its objects."""
        for base in self.base_classes(ref):
            if isinstance(base, Library):
                role = library.base_role(base.name)
                if role is not None:
                    return role
        return None

    def instances(self, node: ast.ClassDef) -> list[Site]:
        """The sites that make objects of this class."""
        return [s for s, d in self.details.items() if d.class_def is not None and d.class_def.node is node]

    def parameterised(self, module: Module) -> frozenset[str]:
        """The names of which a module asks ``name.parameters()``."""
        if module not in self._parameterised:
            self._parameterised[module] = frozenset(
                node.value.id
                for node in module.walk()
                if isinstance(node, ast.Attribute) and node.attr == "parameters" and isinstance(node.value, ast.Name)
            )
        return self._parameterised[module]


def _join_environments(environments: Sequence[dict[str, Value]]) -> dict[str, Value]:
    if len(environments) == 1:
        return dict(environments[0])
    names = {name for environment in environments for name in environment}
    return {name: join(e[name] for e in environments if name in e) for name in names}

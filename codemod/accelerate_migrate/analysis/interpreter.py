"""The abstract interpretation of a whole program: its modules, and the calls of its functions and classes.

A name read from another scope has the join of everything ever bound to it there, so the whole program is run until
those joins stop growing. Functions are entered at their calls, once for each combination of arguments; functions that
nothing calls are entered last, with arguments of which nothing is known.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Hashable

from accelerate_migrate.analysis.activations import Activation
from accelerate_migrate.analysis.atoms import ClassRef, FunctionRef, Mapping_, Object, Role, Sequence_, Site
from accelerate_migrate.analysis.frames import Arguments, Frame
from accelerate_migrate.analysis.modules import Module, Program
from accelerate_migrate.analysis.scopes import is_decorated
from accelerate_migrate.analysis.statements import Statements
from accelerate_migrate.analysis.values import ANY, BOTTOM, NONE, Value, join, sequence, value

MAX_ROUNDS = 4
MAX_CONTEXTS = 8
MAX_CALL_DEPTH = 24


class Interpreter(Statements):
    """Runs a program on abstract values and keeps what every expression may be."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._memo: dict[Hashable, Activation] = {}  # what ran in this round
        self._past: dict[Hashable, Activation] = {}  # what ran last with this key
        self._open: list[Activation] = [self.running]
        self._active: list[ast.AST] = []
        self._contexts: dict[ast.AST, int] = defaultdict(int)
        self._running: set[Module] = set()

    def run(self, rounds: int = MAX_ROUNDS) -> None:
        """Interpret the whole program to a fixpoint, or for as many rounds as are allowed."""
        for _ in range(rounds):
            self.start_round()
            self._memo.clear()
            self._contexts.clear()
            for module in list(self.program.modules):
                self.enter_module(module)
            for module in list(self.program.modules):
                self._enter_uncalled(module)
            if not self.grew:
                break
        self._past.clear()

    def enter_module(self, module: Module) -> None:
        """Run a module's body, once a round (an import cycle sees what is bound so far)."""
        self.running.modules[module] = None
        if module in self._memo or module in self._running:
            return
        self._running.add(module)
        past = self._past.get(module)
        for other in past.modules if past is not None else ():
            self.enter_module(other)
        if not self._repeated(module):
            frame = Frame(module, module.tree, {"__name__": ANY, "__file__": ANY})
            self._start(module)
            self.block(module.tree.body, frame)
            self._finish(BOTTOM)
        self._running.discard(module)

    # ---- what need not run again

    def _start(self, key: Hashable) -> None:
        self.running = Activation(key, len(self._active))
        self._open.append(self.running)

    def _finish(self, result: Value) -> None:
        done = self._open.pop()
        done.result = result
        self._memo[done.key] = done
        if done.repeatable:
            self._past[done.key] = done
        else:
            self._past.pop(done.key, None)
        self.running = self._open[-1]
        if not isinstance(done.key, Module):
            self.running.inside[done] = None

    def run_again(self) -> None:
        for one in self._open:
            one.repeatable = False

    def _cut(self, node: ast.AST) -> None:
        """A call was not followed because of the calls around it: what stands between has no result of its own."""
        first = self._active.index(node) if node in self._active else -1
        for one in self._open:
            if one.depth > first:
                one.repeatable = False

    def _repeated(self, key: Hashable) -> bool:
        """Do again what an earlier round did for this key, if it holds."""
        past = self._past.get(key)
        if past is None or not self.clock.holds(past):
            return False
        self._repeat(past)
        return True

    def _repeat(self, past: Activation) -> None:
        self._memo[past.key] = past
        for module in past.modules:
            self.enter_module(module)
        for inner in past.inside:
            if inner.key not in self._memo:
                self._repeat(inner)
        if isinstance(past.key, tuple):
            self._contexts[past.key[0]] += 1
        values = self.values
        for node, one in past.notes.items():
            known = values.get(node)
            values[node] = one if known is None else known | one

    def _enter_uncalled(self, module: Module) -> None:
        entered = self._contexts
        for node in module.walk():
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node not in entered:
                owner = None
                scope = module.scope(node)
                if isinstance(scope, ast.ClassDef):
                    owner = self._objects(scope, module)
                self.call_function(FunctionRef(node, module, owner), Arguments(unknown=True))

    def _objects(self, node: ast.ClassDef, module: Module) -> Value:
        """The objects that a method of a class may run on: those made in the program, else one that others make."""
        made = self.instances(node)
        if not made:
            made = [site for site, details in list(self.details.items()) if self._derives(details.class_def, node)]
        if made:
            return value(*map(Object, made))
        ref = ClassRef(node, module)
        site = Site(self.class_role(ref) or Role.INSTANCE, module.path, node.lineno, node.col_offset, node.name)
        self.details[site].class_def = ref
        owner = value(Object(site))
        for atom in self.class_attribute(ref, "__init__").of(FunctionRef):
            self.call_function(FunctionRef(atom.node, atom.module, owner), Arguments(unknown=True))
        return owner

    def _derives(self, ref: ClassRef | None, node: ast.ClassDef) -> bool:
        bases = self.base_classes(ref) if ref is not None else []
        return any(isinstance(base, ClassRef) and base.node is node for base in bases)

    def _is_in_model(self, frame: Frame) -> bool:
        """Whether a method of a model is running: what it makes are parts of the model."""
        owner = frame.module.class_of(frame.scope)
        return owner is not None and self.class_role(ClassRef(owner, frame.module)) is Role.MODEL

    def _part(self, ref: ClassRef, node: ast.Call) -> Site:
        """One site for all parts of models that are made of a class: they need not be told apart."""
        site = Site(Role.MODEL, ref.module.path, ref.node.lineno, ref.node.col_offset, ref.node.name)
        self.details[site].class_def = ref
        self.details[site].nodes.add(node)
        return site

    # ---- functions

    def call_function(self, ref: FunctionRef, arguments: Arguments) -> Value:
        """The value that a call of this function returns."""
        node = ref.node
        if isinstance(node, ast.Lambda):
            return self._call_lambda(ref, node, arguments)
        if self._active.count(node) > 1 or len(self._active) > MAX_CALL_DEPTH:
            self._cut(node)
            return BOTTOM if node in self._active else ANY
        if self._contexts[node] >= MAX_CONTEXTS:
            arguments = Arguments(unknown=True)
        bound = self._bind(ref, node, arguments)
        key = (node, *bound.items())
        if key in self._memo or self._repeated(key):
            known = self._memo[key]
            self.running.inside[known] = None
            return known.result
        self._start(key)
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
        self._finish(result)
        return result

    def _call_lambda(self, ref: FunctionRef, node: ast.Lambda, arguments: Arguments) -> Value:
        if len(self._active) > MAX_CALL_DEPTH or node in self._active:
            self._cut(node)
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
                bound[parameter.arg] = self._missing(ref.module, default, arguments, parameter)
        for parameter, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            bound[parameter.arg] = (
                keywords.pop(parameter.arg)
                if parameter.arg in keywords
                else self._missing(ref.module, default, arguments, parameter)
            )
        if spec.vararg:
            rest = given[len(positional) :]
            bound[spec.vararg.arg] = value(Sequence_((), ANY)) if arguments.unknown else sequence(rest)
        if spec.kwarg:
            unknown = ANY if arguments.unknown else None
            bound[spec.kwarg.arg] = value(Mapping_(tuple(keywords.items()), unknown))
        return bound

    def _missing(self, module: Module, default: ast.expr | None, arguments: Arguments, parameter: ast.arg) -> Value:
        known = self.expression(default, Frame(module, module.tree, {})) if default is not None else BOTTOM
        if not arguments.unknown and default is not None:
            return known
        if parameter.arg in module.parameterised:  # only models are asked for their parameters
            return value(Object(Site(Role.MODEL, module.path, parameter.lineno, parameter.col_offset, parameter.arg)))
        return known | ANY

    def construct(self, ref: ClassRef, node: ast.Call, frame: Frame, arguments: Arguments) -> Value:
        """The value of calling a class of the program: an object of the role its bases give it."""
        role = self.class_role(ref) or Role.INSTANCE
        if role is Role.MODEL and self._is_in_model(frame):
            site = self._part(ref, node)
        else:
            site = self.site(role, node, frame, ref.node.name, ref)
        self.constructed(site, arguments)
        initialiser = self.class_attribute(ref, "__init__")
        owner = value(Object(site))
        for atom in initialiser.of(FunctionRef):
            self.note_call(node, atom)
            self.call_function(FunctionRef(atom.node, atom.module, owner), arguments)
        return owner

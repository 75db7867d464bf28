"""Where the accelerator is made, and how it reaches the functions that need it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from accelerate_migrate.analysis.devices import DeviceDefinition, branch_choice, guarded_choice
from accelerate_migrate.analysis.homes import Group
from accelerate_migrate.analysis.modules import Module
from accelerate_migrate.analysis.scopes import parameters
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.analysis.values import FunctionRef, is_device

NAME = "accelerator"


@dataclass(eq=False)
class Placement:
    """The scope that makes the accelerator, and the functions that are given it.

    ``device_parameters`` are parameters that only ever hold the device: the accelerator takes their place.
    """

    training: Training
    scope: ast.AST  # the module, or the function that sets the training up
    definition: DeviceDefinition | None  # the device choice that the creation replaces
    cpu: str | None = None  # the argument ``cpu=`` that keeps the script's own choice
    chosen_at: int = 0  # the line that makes this choice
    device_parameters: dict[ast.AST, str] = field(default_factory=dict)
    needed: set[ast.AST] = field(default_factory=set)  # functions that use the accelerator
    uses: set[ast.AST] = field(default_factory=set)  # the nodes that asked for it
    _reachable: dict[ast.AST, bool] = field(default_factory=dict)

    @property
    def module(self) -> Module:
        """The module of the placement."""
        return self.training.module

    def available(self, node: ast.AST) -> bool:
        """Whether code at this node can name the accelerator (it may have to be passed there)."""
        if not self.reaches(self.module.function(node)) or self._in_foreign_class(node):
            return False
        return all(statement.lineno > self.floor for statement in self.leading_to(node))

    @cached_property
    def cpu_reads(self) -> frozenset[str]:
        """The sources of the names and attributes that the argument ``cpu=`` reads."""
        tree = ast.parse(self.cpu or "")
        return frozenset(ast.unparse(n) for n in ast.walk(tree) if isinstance(n, (ast.Name, ast.Attribute)))

    @cached_property
    def floor(self) -> int:
        """The line behind which the accelerator can be made: its arguments exist, and so does its import."""
        if self.cpu is None:
            return (
                _end_of_imports(self.scope) if isinstance(self.scope, ast.Module) else getattr(self.scope, "lineno", 0)
            )
        lines = [
            self.module.statement(n).end_lineno or 0
            for n in self.module.walk(self.scope)
            if isinstance(n, (ast.Name, ast.Attribute))
            and isinstance(n.ctx, ast.Store)
            and ast.unparse(n) in self.cpu_reads
            and n.lineno < self.chosen_at
        ]
        return max(lines, default=0)

    def leading_to(self, node: ast.AST) -> list[ast.stmt]:
        """The statements of the accelerator's scope at which this node may first run."""
        found: list[ast.stmt] = []
        seen: set[ast.AST] = set()
        queue = [node]
        while queue:
            current = queue.pop()
            function = self.module.function(current)
            if function is self.scope:
                found.append(self.module.statement(current))
            elif function not in seen:
                seen.add(function)
                queue.extend(self.training.store.callers.get(function, ()))
        return found

    def _in_foreign_class(self, node: ast.AST) -> bool:
        """Inside a class the accelerator is a global of the script at best."""
        if isinstance(self.scope, ast.Module):
            return False
        return any(
            isinstance(a, ast.ClassDef) and self.scope not in self.module.ancestors(a)
            for a in self.module.ancestors(node)
        )

    def use(self, node: ast.AST) -> str:
        """The name of the accelerator at this node; remembers that it is needed there."""
        self.uses.add(node)
        function = self.module.function(node)
        self._need(function)
        return NAME

    def _need(self, function: ast.AST) -> None:
        if function in self.needed or self.is_visible_in(function):
            return
        self.needed.add(function)
        for call in self.training.store.callers.get(function, ()):
            self._need(self.module.function(call))

    def is_visible_in(self, function: ast.AST) -> bool:
        """Whether a function sees the accelerator without being given it: the scope that makes it, or one inside it."""
        return (
            isinstance(self.scope, ast.Module)
            or function is self.scope
            or self.scope in self.module.ancestors(function)
        )

    def reaches(self, function: ast.AST) -> bool:
        """Whether a function sees the accelerator or can be given it at all its calls."""
        if self.is_visible_in(function):
            return True
        if isinstance(function, ast.Module):
            return False
        if function not in self._reachable:
            self._reachable[function] = False  # a cycle alone reaches nothing
            self._reachable[function] = self._can_be_given(function)
        return self._reachable[function]

    def _can_be_given(self, function: ast.AST) -> bool:
        assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        if isinstance(self.module.parents[function], ast.ClassDef) or function.decorator_list:
            return False
        calls = self.training.store.callers.get(function, set())
        if not calls or escapes(self.training, function):
            return False
        inside = set(self.module.walk())
        return all(call in inside and self.reaches(self.module.function(call)) for call in calls)


def escapes(training: Training, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is used other than by calling it by name, so that its calls are not all known."""
    known = {call.func for call in training.store.callers.get(function, ())}
    for node in training.module.walk():
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and node not in known:
            if any(isinstance(a, FunctionRef) and a.node is function for a in training.value(node)):
                return True
    return any(not isinstance(f, ast.Name) for f in known)


def place(training: Training, groups: list[Group], definitions: list[DeviceDefinition]) -> Placement:
    """Decide where the accelerator is made. Raises ``Unclear`` where no one scope can make it."""
    module = training.module
    if NAME in _all_names(module):
        raise Unclear(f"the name `{NAME}` is already used in this file")
    scopes = {group.scope for group in groups}
    at_module = [d for d in definitions if isinstance(d.scope, ast.Module)]
    if at_module or any(isinstance(s, ast.Module) for s in scopes) or not scopes:
        scope: ast.AST = module.tree
    else:
        scope = _outermost(training, scopes)
    own = [d for d in definitions if d.scope is scope]
    if len({d.cpu for d in definitions}) > 1:
        raise Unclear("the device is chosen in several places, each in its own way", definitions[-1].statement)
    certain = [d for d in own if _runs_before(training, d, groups)]
    if certain:
        placement = Placement(training, scope, certain[0], certain[0].cpu, certain[0].statement.lineno)
    elif own:
        placement = Placement(training, scope, None, *branch_choice(training, own[0]))
    else:
        placement = Placement(training, scope, None, *guarded_choice(training))
    for group in groups:
        if not placement.available(group.anchor):
            raise Unclear("the objects to prepare are made in functions that do not call each other", group.anchor)
    placement.device_parameters = dict(_device_parameters(training, placement))
    return placement


def _runs_before(training: Training, definition: DeviceDefinition, groups: list[Group]) -> bool:
    """Whether everything is prepared in the block of this choice (not so where it stands in one branch of several)."""
    module = training.module
    block = module.block(definition.statement)
    probe = Placement(training, definition.scope, None)
    starts = [s for group in groups for s in probe.leading_to(group.anchor)]
    return all(s in block or any(a in block for a in module.ancestors(s)) for s in starts)


def _outermost(training: Training, scopes: set[ast.AST]) -> ast.AST:
    """The scope from which the others are called."""
    for scope in scopes:
        reached = {scope}
        for node in training.reached(list(getattr(scope, "body", []))):
            if isinstance(node, ast.Call):
                reached |= training.store.calls.get(node, set())
        if scopes <= reached:
            return scope
    raise Unclear("model, optimizer and loader are made in functions that do not call each other", next(iter(scopes)))


def _device_parameters(training: Training, placement: Placement) -> list[tuple[ast.AST, str]]:
    found: list[tuple[ast.AST, str]] = []
    module = training.module
    for function in module.walk():
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if placement.is_visible_in(function) and not isinstance(placement.scope, ast.Module):
            continue
        if not placement.reaches(function) or not training.store.callers.get(function):
            continue
        if isinstance(module.parents[function], ast.ClassDef) or escapes(training, function):
            continue
        held = [a.arg for a in parameters(function) if _holds_device(training, function, a.arg)]
        if len(held) == 1 and _all_calls_pass(training, function, held[0]):
            found.append((function, held[0]))
    return found


def _holds_device(training: Training, function: ast.AST, name: str) -> bool:
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    one = training.store.stored(function, name)
    return one is not None and bool(one.atoms) and is_device(one)


def _all_calls_pass(training: Training, function: ast.AST, name: str) -> bool:
    """Whether every call passes a variable, and the parameter has no default, which would need one out of nowhere."""
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    spec = function.args
    named = [*spec.posonlyargs, *spec.args]
    with_default = {a.arg for a in named[len(named) - len(spec.defaults) :]} if spec.defaults else set()
    with_default |= {a.arg for a, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default is not None}
    passed = [argument_for(call, function, name) for call in training.store.callers[function]]
    return name not in with_default and all(isinstance(argument, ast.Name) for argument in passed)


def argument_for(call: ast.Call, function: ast.AST, name: str) -> ast.expr | None:
    """The argument of a call that becomes this parameter of the function, or ``None``."""
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if name in names and not any(isinstance(a, ast.Starred) for a in call.args):
        index = names.index(name)
        if index < len(call.args):
            return call.args[index]
    return None


def _end_of_imports(tree: ast.Module) -> int:
    """The last line of the run of imports that brings torch (else of the first run): ours is put among them."""
    runs = [list(run) for of_imports, run in groupby(tree.body, _is_import) if of_imports]
    with_torch = [run for run in runs if any("torch" in ast.unparse(statement) for statement in run)]
    return next(((run[-1].end_lineno or 0) for run in [*with_torch, *runs]), 0)


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Import, ast.ImportFrom))


def _all_names(module: Module) -> set[str]:
    names: set[str] = set()
    for node in module.walk():
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
    return names

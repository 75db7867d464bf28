"""Where accelerators are made: the scopes that set training up, and the choice of a device that each replaces."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.devices import (
    DeviceDefinition,
    branch_choice,
    guarded_choice,
    is_of_self,
    says_where_to_load,
)
from accelerate_migrate.analysis.groups import Group
from accelerate_migrate.analysis.handed_choice import choice_below
from accelerate_migrate.analysis.modules import Module
from accelerate_migrate.analysis.placement import NAME, Creation, Placement, escapes
from accelerate_migrate.analysis.scopes import argument_for, binding_scope, parameters
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.analysis.values import is_device


def place(training: Training, groups: list[Group], definitions: list[DeviceDefinition]) -> Placement:
    """Decide where accelerators are made. Raises ``Unclear`` where no scope can make one for some training."""
    for module in training.module.active:
        taken = _name_taken(module)
        if taken is not None:
            raise Unclear(f"the name `{NAME}` is already used in this file", taken)
    creations = [_creation(training, scope, groups, definitions) for scope in _scopes(training, groups, definitions)]
    placement = Placement(training, creations)
    for group in groups:
        if not placement.available(group.anchor):
            raise Unclear("the objects to prepare are made in functions that do not call each other", group.anchor)
    chosen = frozenset((definition.scope, target) for definition in definitions for target in definition.targets)
    placement.device_parameters = dict(_device_parameters(training, placement, chosen))
    return placement


def _scopes(training: Training, groups: list[Group], definitions: list[DeviceDefinition]) -> list[ast.AST]:
    """The scopes that make an accelerator: one for all objects that are set up together."""
    scopes = list(dict.fromkeys(group.scope for group in groups))
    if not scopes:
        scopes = list(dict.fromkeys(training.module.root(call) for call in training.backwards))
    reach = {scope: training.called_from(scope) for scope in scopes}
    tops = [s for s in scopes if not any(s in reach[o] and o not in reach[s] for o in scopes if o is not s)]
    merged: list[ast.AST] = []
    for top in tops:
        shared = next((m for m in merged if common_caller(training, [m, top]) is not None), None)
        if shared is None:
            merged.append(top)
        else:
            common = common_caller(training, [shared, top])
            assert common is not None
            merged[merged.index(shared)] = common
    return list(dict.fromkeys(found for scope in merged for found in _with_definitions(training, scope, definitions)))


def _with_definitions(training: Training, scope: ast.AST, definitions: list[DeviceDefinition]) -> list[ast.AST]:
    """Where the device is chosen, if that leads to the set-up: there the script starts to set itself up."""
    root = training.module.root(scope)
    if any(d.scope is root for d in definitions) and scope in training.called_from(root):
        return [root]
    definitions = [d for d in definitions if not says_where_to_load(training, d)]
    callers = training.callers_of(scope)[1:]
    choosing = [above for above in callers if any(d.scope is above for d in definitions)]
    outermost = [one for one in choosing if not any(one in training.called_from(o) for o in choosing if o is not one)]
    if outermost and Placement(training, [Creation(training, one, None) for one in outermost]).reaches(scope):
        return outermost
    return [scope]


def common_caller(training: Training, scopes: list[ast.AST]) -> ast.AST | None:
    """The scope closest to these that leads to all of them, or ``None``."""
    chains = [training.callers_of(scope) for scope in scopes]
    common = set(chains[0]).intersection(*chains[1:])
    sizes = {scope: len(training.called_from(scope)) for scope in common}
    return min(sizes, key=lambda s: (sizes[s], getattr(s, "lineno", 0)), default=None)


def _creation(training: Training, scope: ast.AST, groups: list[Group], definitions: list[DeviceDefinition]) -> Creation:
    definitions = [d for d in definitions if not says_where_to_load(training, d)]
    reached = training.called_from(scope)
    own = [d for d in definitions if d.scope is scope]
    inside = [
        d for d in definitions if d.scope in reached or training.module.root(d.scope) is training.module.root(scope)
    ]
    if len({d.cpu for d in inside if d in own or not any(map(is_of_self, d.targets))}) > 1:
        raise Unclear("the device is chosen in several places, each in its own way", inside[-1].statement)
    led = [group for group in groups if group.scope in reached]
    certain = [d for d in own if _runs_before(training, d, led)]
    if certain:
        cpu = certain[0].cpu or choice_below(training, scope)[0]
        return Creation(training, scope, certain[0], cpu, certain[0].statement.lineno)
    if own:
        return Creation(training, scope, None, *branch_choice(training, own[0]))
    cpu, line = guarded_choice(training, scope)
    return Creation(training, scope, None, *((cpu, line) if cpu is not None else choice_below(training, scope)))


def _runs_before(training: Training, definition: DeviceDefinition, groups: list[Group]) -> bool:
    """Whether everything is prepared in the block of this choice (not so where it stands in one branch of several)."""
    module = training.module
    block = module.block(definition.statement)
    starts = [s for group in groups for s in training.leading_to(group.anchor, definition.scope)]
    return all(s in block or any(a in block for a in module.ancestors(s)) for s in starts)


def _device_parameters(
    training: Training, placement: Placement, chosen: frozenset[tuple[ast.AST, str]]
) -> list[tuple[ast.AST, str]]:
    found: list[tuple[ast.AST, str]] = []
    module = training.module
    for function in module.walk():
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if any(
            function is c.scope or c.scope in module.ancestors(function)
            for c in placement.creations
            if not isinstance(c.scope, ast.Module)
        ):
            continue
        if not placement.reaches(function) or not training.store.callers.get(function):
            continue
        method = isinstance(module.parents[function], ast.ClassDef)
        if (method and function.name != "__init__") or (not method and escapes(training, function)):
            continue
        held = [a.arg for a in parameters(function) if _holds_device(training, function, a.arg)]
        if len(held) == 1 and _all_calls_pass(training, function, held[0], chosen):
            found.append((function, held[0]))
    return found


def _holds_device(training: Training, function: ast.AST, name: str) -> bool:
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    one = training.store.stored(function, name)
    return one is not None and bool(one.atoms) and is_device(one)


def _all_calls_pass(training: Training, function: ast.AST, name: str, chosen: frozenset[tuple[ast.AST, str]]) -> bool:
    """Whether every call passes a device variable that a definition or a caller's own parameter can be replaced in,
    and the parameter has no default, which would need one out of nowhere."""
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    spec = function.args
    named = [*spec.posonlyargs, *spec.args]
    with_default = {a.arg for a in named[len(named) - len(spec.defaults) :]} if spec.defaults else set()
    with_default |= {a.arg for a, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default is not None}
    passed = [argument_for(call, function, name) for call in training.store.callers[function]]
    return name not in with_default and all(
        isinstance(argument, ast.Name)
        and (
            (binding_scope(training.module, training.store, argument), argument.id) in chosen
            or _is_parameter(training, argument)
        )
        for argument in passed
    )


def _is_parameter(training: Training, node: ast.Name) -> bool:
    function = training.module.function(node)
    if isinstance(function, ast.Module):
        return False
    return node.id in {parameter.arg for parameter in parameters(function)}


def _name_taken(module: Module) -> ast.AST | None:
    """Where a file uses the accelerator's name for something of its own."""
    for node in module.walk():
        if NAME in (getattr(node, "id", ""), getattr(node, "arg", "")) and isinstance(node, (ast.Name, ast.arg)):
            return node
        if isinstance(node, ast.alias) and (node.asname or node.name) == NAME:
            return node
    return None

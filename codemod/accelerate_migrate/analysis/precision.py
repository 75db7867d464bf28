"""Mixed precision of a script: where autocast stands, what scales the loss, and the one setting that says the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from accelerate_migrate.analysis import library
from accelerate_migrate.analysis.atoms import ClassRef, Const, Role, Site
from accelerate_migrate.analysis.branches import collapsible
from accelerate_migrate.analysis.modes import (
    Mode,
    Setting,
    enabled_of_autocast,
    mode_of_apex,
    mode_of_autocast,
    mode_of_scaler,
    scaling_arguments,
)
from accelerate_migrate.analysis.modules import Files, is_main_block
from accelerate_migrate.analysis.placement import Creation, Placement
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.unclear import Unclear


@dataclass(frozen=True, eq=False)
class Region:
    """A ``with`` that enters autocast through ``expression``; ``off`` where it turns autocast off for a while."""

    node: ast.With | ast.AsyncWith
    expression: ast.expr
    off: bool


@dataclass(eq=False)
class Precision:
    """What a module does about mixed precision; all empty in one that does nothing."""

    training: Training
    placement: Placement
    regions: list[Region] = field(default_factory=list)
    held: list[ast.stmt] = field(default_factory=list)  # statements that keep an autocast in a variable
    of_models: list[ast.Call] = field(default_factory=list)  # autocast that a model turns on for itself
    scalings: list[ast.Call] = field(default_factory=list)  # calls that make a GradScaler
    apex: list[ast.Call] = field(default_factory=list)  # amp.initialize(...)
    collapsed: dict[ast.If, str] = field(default_factory=dict)  # branch to keep
    modes: dict[Creation, Mode] = field(default_factory=dict)
    scaling: dict[Creation, dict[str, str]] = field(default_factory=dict)  # what scalers are told: names and sources

    @property
    def module(self) -> Files:
        """The files that are looked at."""
        return self.training.module

    def is_for(self, creation: Creation, node: ast.AST) -> bool:
        """Whether code runs with this accelerator: called from where it is made, or a method beside that."""
        creations = self.placement.creations
        led = [c for c in creations if len(creations) == 1 or c.leading_to(node)]
        owner = self.module.class_of(self.module.function(node))
        beside = [c for c in creations if owner is not None and self.module.class_of(c.scope) is owner]
        return creation in (led or beside or creations)

    def regions_of(self, creation: Creation) -> list[Region]:
        """The regions under autocast that an accelerator is for."""
        return [r for r in self.regions if not r.off and self.is_for(creation, r.expression)]

    def scalings_of(self, creation: Creation) -> list[ast.Call]:
        """The calls that make a GradScaler where an accelerator is to scale."""
        return [call for call in self.scalings if self.is_for(creation, call)]

    def keeps_float32(self, creation: Creation) -> bool:
        """Whether the loss is scaled here and autocast left to the model's own code."""
        return bool(self.scalings_of(creation)) and not self.regions_of(creation)

    def scales_nothing(self, creation: Creation) -> bool:
        """Whether the script runs in fp16 without scaling its loss."""
        return bool(self.regions_of(creation)) and not self.scalings and not self.apex and not self.scaler_sites

    @property
    def scaler_sites(self) -> frozenset[Site]:
        """The GradScalers of the program."""
        return frozenset(site for site in self.training.store.details if site.role is Role.SCALER)

    def is_scaler(self, node: ast.AST) -> bool:
        """Whether an expression is a GradScaler (or ``None`` in its place)."""
        return bool(self.training.value(node).sites(Role.SCALER))

    def asks_for_scaler(self, test: ast.expr) -> bool:
        """Whether a condition asks whether there is a scaler: ``scaler is not None``, ``scaler``, ``not scaler``."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test = test.operand
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
            right = test.comparators[0]
            return isinstance(right, ast.Constant) and right.value is None and self.is_scaler(test.left)
        return isinstance(test, (ast.Name, ast.Attribute)) and self.is_scaler(test)

    def may_be_none(self, node: ast.AST) -> bool:
        """Whether ``None`` may stand in the scaler's place."""
        return Const(None) in self.training.value(node).atoms


def find_precision(training: Training, placement: Placement) -> Precision:
    """Everything of mixed precision in a module. Raises ``Unclear`` where it has no one counterpart."""
    found = Precision(training, placement)
    for call, names in _library_calls(training):
        if names & (library.SCALERS | library.CALLED_SCALERS):
            found.scalings.append(call)
        elif names & library.AUTOCASTS:
            _sort_autocast(found, call)
        elif "apex.amp.initialize" in names:
            found.apex.append(call)
    for node in found.module.walk():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            _check_decorators(found, node)
    _find_entered(found)
    found.collapsed = collapsible(found)
    for creation in placement.creations:
        mode = _one_mode(found, creation)
        if mode is not None:
            found.modes[creation] = mode
        setting = _setting(found, creation)
        scalings = {scaling_arguments(setting, call) for call in found.scalings_of(creation)}
        if len(scalings) > 1:
            raise Unclear("several scalers are made, with different arguments; an accelerator has one",
                          found.scalings[-1])  # fmt: skip
        found.scaling[creation] = dict(*scalings)
    return found


def _library_calls(training: Training) -> Iterator[tuple[ast.Call, frozenset[str]]]:
    for node in training.module.walk():
        if isinstance(node, ast.Call):
            yield node, training.library_names(node.func)


def _check_decorators(found: Precision, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """``@autocast`` without a call; with one it is a call like others."""
    for decorator in function.decorator_list:
        named = found.training.library_names(decorator)
        if named & library.AUTOCASTS and not in_model(found.training, decorator):
            raise Unclear("autocast decorates a function here; put a `with` around what it is for", decorator)


def _sort_autocast(found: Precision, call: ast.Call) -> None:
    """Whether an autocast is entered by a ``with``, kept in a variable for one, or the business of a model."""
    module = found.module
    if in_model(found.training, call):
        found.of_models.append(call)
        return
    parent = module.parents[call]
    while isinstance(parent, ast.IfExp):
        parent = module.parents[parent]
    if isinstance(parent, ast.withitem):
        return
    if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
        raise Unclear("autocast decorates a function here; put a `with` around what it is for", call)
    statement = module.statement(call)
    if (
        isinstance(statement, ast.Assign)
        and parent is statement
        and all(isinstance(t, ast.Name) for t in statement.targets)
    ):
        names = {t.id for t in statement.targets if isinstance(t, ast.Name)}
        loads = [n for n in module.walk() if isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Load)]
        if all(isinstance(module.parents[n], ast.withitem) for n in loads):
            found.held.append(statement)
            return
    raise Unclear("autocast is handed on here; enter it in a `with` where it is for", call)


def _find_entered(found: Precision) -> None:
    training = found.training
    for node in found.module.walk():
        if not isinstance(node, (ast.With, ast.AsyncWith)):
            continue
        for item in node.items:
            expression = item.context_expr
            sites = training.value(expression).sites(Role.AUTOCAST)
            if not sites or in_model(training, expression):
                continue
            calls = _made_by(training, sites)
            off = all(_is_off(training, call) for call in calls)
            found.regions.append(Region(node, expression, off))


def _made_by(training: Training, sites: frozenset[Site]) -> list[ast.Call]:
    nodes = [node for site in sites for node in training.store.details[site].nodes]
    return sorted(nodes, key=lambda call: (call.lineno, call.col_offset))


def _is_off(training: Training, call: ast.Call) -> bool:
    given = enabled_of_autocast(training, call)
    return isinstance(given, ast.Constant) and given.value is False


def in_model(training: Training, node: ast.AST) -> bool:
    """Whether code stands in a model's class: what it does about precision is part of the model."""
    module = training.module
    for around in module.ancestors(node):
        if isinstance(around, ast.ClassDef):
            file = module.module_of(around)
            role = training.store.class_role(ClassRef(around, file)) if file is not None else None
            return role in (Role.MODEL, Role.LOSS)
    return False


def _one_mode(found: Precision, creation: Creation) -> Mode | None:
    """The one setting that all of this comes to; ``None`` where a script has nothing of it, or all of it stays."""
    training = found.training
    setting = _setting(found, creation)
    on = found.regions_of(creation)
    modes: list[Mode] = []
    entered = [
        (call, [] if region.expression is call else _guards(found, region.expression))
        for region in on
        for call in _made_by(training, training.value(region.expression).sites(Role.AUTOCAST))
    ]
    for call, guards in entered:
        both = {test for one, other in entered if one is call for test, holds in other if (test, not holds) in guards}
        way_in = [guard for guard in guards if guard[0] not in both]
        modes.append(mode_of_autocast(setting, call, [*_guards(found, call), *way_in]))
    modes += [mode_of_apex(setting, call, _guards(found, call)) for call in found.apex if found.is_for(creation, call)]
    if not modes:
        modes = [mode_of_scaler(setting, call, _guards(found, call)) for call in found.scalings_of(creation)]
    elif found.scalings:
        _check_scaling(found, creation, modes)
    if not modes:
        return None
    different = [mode for mode in modes if mode.text != modes[0].text]
    if different:
        raise Unclear(
            f"two precisions are used: `{modes[0].text}` (line {modes[0].node.lineno}) and `{different[0].text}`; an "
            "accelerator has one",
            different[0].node,
        )
    return modes[0]


def _setting(found: Precision, creation: Creation) -> Setting:
    guards = [guard for call in found.scalings_of(creation) for guard in _guards(found, call)]
    return Setting(found.training, creation, found.asks_for_scaler, guards)


def _check_scaling(found: Precision, creation: Creation, modes: list[Mode]) -> None:
    """A scaler that is off at times where autocast is on would be on in the migrated script."""
    setting = _setting(found, creation)
    for call in found.scalings_of(creation):
        scaling = mode_of_scaler(setting, call, _guards(found, call))
        fixed = all(not mode.chosen_type for mode in modes)
        if fixed and not set(scaling.conditions) <= set(modes[0].conditions):
            raise Unclear(
                f"the loss is scaled under a condition of its own (`{' and '.join(scaling.conditions)}`), autocast is "
                "not",
                call,
            )


def _guards(found: Precision, node: ast.AST) -> list[tuple[ast.expr, bool]]:
    """The conditions under which a call is made: of a conditional expression, or of an ``if`` with an ``else``.

    Each comes with whether it must hold, or must not.
    """
    guards: list[tuple[ast.expr, bool]] = []
    inside: ast.AST = node
    is_setup = node in found.scalings or node in found.apex
    for around in found.module.ancestors(node):
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            break
        if isinstance(around, ast.IfExp) and inside is not around.test:
            guards.append((around.test, inside is around.body))
        if isinstance(around, ast.If) and isinstance(inside, ast.stmt):
            holds = inside in around.body
            if (around.orelse or is_setup) and not found.asks_for_scaler(around.test):
                if not is_main_block(around):
                    guards.append((around.test, holds))
        inside = around
    return guards

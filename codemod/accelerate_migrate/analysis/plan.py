"""The facts of a program that trains, put together: what rules read."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from accelerate_migrate.analysis import evaluation
from accelerate_migrate.analysis.atoms import Library, Role, Site
from accelerate_migrate.analysis.creations import common_caller, place
from accelerate_migrate.analysis.devices import DeviceDefinition, find_definitions
from accelerate_migrate.analysis.evaluation import Evaluations
from accelerate_migrate.analysis.groups import Group, check_aliases, group_homes
from accelerate_migrate.analysis.handmade import check_gradients
from accelerate_migrate.analysis.homes import Home, find_homes
from accelerate_migrate.analysis.library import MODEL_COPIES
from accelerate_migrate.analysis.modules import Files
from accelerate_migrate.analysis.parallel import find_parallel
from accelerate_migrate.analysis.parallel_statements import Parallel
from accelerate_migrate.analysis.phases import split_by_phase
from accelerate_migrate.analysis.placement import Placement
from accelerate_migrate.analysis.precision import Precision, find_precision
from accelerate_migrate.analysis.scopes import binding_scope
from accelerate_migrate.analysis.store import Store
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.analysis.values import Value


@dataclass(eq=False)
class Plan:
    """Everything that is decided about the active files of a program before any rule changes them."""

    module: Files
    store: Store
    training: Training
    definitions: list[DeviceDefinition]
    evaluations: Evaluations
    homes: list[Home]
    groups: list[Group]
    placement: Placement
    parallel: Parallel

    def value(self, node: ast.AST) -> Value:
        """What an expression may be."""
        return self.training.value(node)

    @cached_property
    def precision(self) -> Precision:
        """What the module does about mixed precision. Raises ``Unclear`` where it has no one counterpart."""
        return find_precision(self.training, self.placement)

    @property
    def prepared(self) -> frozenset[Site]:
        """The objects that go through ``prepare``."""
        return frozenset(site for home in self.homes for site in home.sites)

    @property
    def sharded(self) -> frozenset[Site]:
        """The loaders of which each process sees a part."""
        return frozenset(s for s in self.prepared if s.role is Role.LOADER)

    @cached_property
    def copied(self) -> frozenset[Site]:
        """The models of which a copy is taken before their ``prepare``, which leaves it on the device it was on."""
        return frozenset(
            site
            for node in self.module.walk()
            if isinstance(node, ast.Call) and node.args
            if any(a.name in MODEL_COPIES for a in self.value(node.func).of(Library))
            for site in self.value(node.args[0]).sites(Role.MODEL)
            if not self.is_prepared_at(site, node)
        )

    def group_of(self, site: Site) -> Group | None:
        """The ``prepare`` call that an object goes through."""
        return next((g for g in self.groups for h in g.homes if site in h.sites), None)

    def any_prepared_at(self, sites: Iterable[Site], node: ast.AST) -> bool:
        """Whether, when this node runs, one of these objects has been through ``prepare``."""
        return any(self.is_prepared_at(site, node) for site in sites)

    def is_prepared_at(self, site: Site, node: ast.AST) -> bool:
        """Whether, when this node runs, the object has been through ``prepare``."""
        group = self.group_of(site)
        if group is None or self._is_bare_name(group, site, node):
            return False
        return self._runs_behind(group, node, set())

    def _is_bare_name(self, group: Group, site: Site, node: ast.AST) -> bool:
        """Whether the object is asked for by a name that a caller of the ``prepare`` had for it before."""
        named = next((n for n in ast.walk(node) if isinstance(n, ast.Name) and site in self.value(n).sites()), None)
        if named is None or group.made is not None:
            return False
        scope = binding_scope(self.module, self.store, named)
        return scope is not group.scope and bool(self.training.leading_to(group.anchor, scope))

    def _runs_behind(self, group: Group, node: ast.AST, seen: set[ast.AST]) -> bool:
        scope = self.module.function(node)
        if scope is group.scope:
            return node.lineno > group.end if isinstance(node, (ast.expr, ast.stmt)) else True
        if scope in seen:
            return False
        seen.add(scope)
        leading = self.training.leading_to(group.anchor, scope)
        if leading and isinstance(node, (ast.expr, ast.stmt)):  # this function leads to the prepare elsewhere
            if node.lineno > min(s.lineno for s in leading):
                return True
            return any(self._leads(inner, group) for inner in ast.walk(node) if inner is not node)
        calls = self.store.callers.get(scope, set())
        if isinstance(scope, ast.Module) and not self.module.is_active(scope):
            return False  # a script that does not train
        if not calls or isinstance(scope, ast.Module):
            return True
        return any(self._runs_behind(group, call, seen) for call in calls)

    def _leads(self, node: ast.AST, group: Group) -> bool:
        """Whether a call prepares the group before it returns, like the first one of ``Trainer(args).run()``."""
        called = self.store.calls.get(node, ()) if isinstance(node, ast.Call) else ()
        return any(group.scope in self.training.called_from(callee) for callee in called)


def plan_training(training: Training) -> Plan | None:
    """The plan of files that train; ``None`` where nothing trains there. Raises ``Unclear``."""
    if not training.backwards:
        return None
    if not training.optimizers:
        raise Unclear(
            "gradients are computed here, but no optimizer that is known steps on them", training.backwards[0]
        )
    _check_steps(training)
    if not training.models:
        _check_only_tensors(training)
    check_gradients(training)
    parallel = find_parallel(training)
    try:
        arranged = _arranged(training, parallel, where_made=False)
    except Unclear as unclear:
        try:  # nearer to where things are made, others may still use them
            arranged = _arranged(training, parallel, where_made=True)
        except Unclear:
            raise unclear from None
    evaluations, homes, groups, definitions, placement = arranged
    for call in training.backwards:
        if not placement.available(call):
            raise Unclear("the accelerator cannot be passed to the code that trains", call)
    return Plan(training.module, training.store, training, definitions, evaluations, homes, groups, placement, parallel)


def _check_steps(training: Training) -> None:
    """Raise ``Unclear`` where what uses the gradients of a backward steps, but is no optimizer that is known.

    Other files of the program may have optimizers of their own: those say nothing about this backward.
    """
    known = {training.module.function(call) for call in (*training.steps, *training.outside_steps)}
    unknown = {
        training.module.function(node)
        for node in training.module.walk()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"
        if training.value(node.func.value).may_be_unknown() and not node.args and node not in training.steps
    }
    checked: dict[ast.AST, bool] = {}
    for call in training.backwards if unknown else ():
        function = training.module.function(call)
        if function not in checked:
            reached = {s for above in training.callers_of(function) for s in training.called_from(above)}
            checked[function] = known.isdisjoint(reached) and not unknown.isdisjoint(reached)
        if checked[function]:
            raise Unclear("gradients are computed here, but no optimizer that is known steps on them", call)


def _check_only_tensors(training: Training) -> None:
    """Raise ``Unclear`` unless what is trained is tensors of the script's own, such as an image or a latent code.

    No wrapper averages their gradients, so that is right where every process computes them from the same data.
    """
    step = next(iter(training.steps), None)
    if not all(training.store.details[site].owns_tensors for site in training.optimizers):
        raise Unclear("the model whose parameters the optimizer owns could not be found", step)
    if training.loaders_trained_on:
        raise Unclear(
            "the optimizer steps on tensors that no model holds, whose gradients several processes would not average",
            step,
        )


_Arranged: TypeAlias = tuple[Evaluations, list[Home], list[Group], list[DeviceDefinition], Placement]


def _arranged(training: Training, parallel: Parallel, *, where_made: bool) -> _Arranged:
    """What is prepared where, and where the accelerator comes from. Raises ``Unclear``."""
    evaluations, homes, groups = _prepared(training, parallel, where_made=where_made)
    definitions = [d for d in find_definitions(training, parallel.gone) if not parallel.is_gone(d.statement)]
    return evaluations, homes, groups, definitions, place(training, groups, definitions)


def _prepared(
    training: Training, parallel: Parallel, *, where_made: bool
) -> tuple[Evaluations, list[Home], list[Group]]:
    """What is prepared, where. A loader for evaluation alone that cannot be is left whole on every process."""
    apart: dict[Site, str] = {}
    trained_on = training.loaders_trained_on
    while True:
        evaluations = evaluation.decide(training, apart)
        wanted = training.models | training.optimizers | training.per_batch_schedulers
        wanted |= training.loaders - set(evaluations.whole)
        try:
            homes = split_by_phase(training, find_homes(training, wanted, parallel.aliases, where_made=where_made))
            groups = group_homes(training, homes)
            unreached = _made_apart(training, groups)
            if not unreached:
                check_aliases(training, groups, parallel.aliases)
                return evaluations, homes, groups
            apart |= dict.fromkeys(unreached, "it is made where the accelerator is not")
        except Unclear as unclear:
            optional = all(s.role is Role.LOADER and s not in trained_on for s in unclear.about)
            if not unclear.about or not optional or unclear.about <= apart.keys():
                raise
            apart |= dict.fromkeys(unclear.about, unclear.message)


def _made_apart(training: Training, groups: list[Group]) -> frozenset[Site]:
    """Loaders for evaluation alone, made by functions that nothing known to set up training leads to."""
    setting_up = [g for g in groups if any(s.role is not Role.LOADER or s in training.trained_loaders for s in g.sites)]
    scopes = {group.scope for group in setting_up}
    reached = {scope for above in scopes for scope in training.called_from(above)}
    return frozenset(
        site
        for group in groups
        if group not in setting_up
        and group.scope not in reached
        and not any(common_caller(training, [group.scope, scope]) for scope in scopes)
        for site in group.sites
    )

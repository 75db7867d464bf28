"""AM250: a script without a loader would train the same thing on every process."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.draws import is_same_everywhere
from accelerate_migrate.analysis.placement import escapes
from accelerate_migrate.rules.base import Context, Rule


def apply(context: Context) -> None:
    """Say where the data of a training loop is not spread over processes."""
    plan = context.plan
    unfed = [
        call
        for call in plan.training.backwards
        if not plan.training.drawn_for(call) & plan.sharded
        and (not plan.training.inside_loader_loop(call) or not plan.training.trained_loaders)
    ]
    if len(unfed) < len(plan.training.backwards):
        unfed = [call for call in unfed if not _is_never_called(context, call)]
    doubtful = next((call for call in unfed if not is_same_everywhere(plan.training, call)), None)
    if doubtful is not None:
        context.review(
            doubtful,
            "no DataLoader feeds this backward: on several processes each would train on the same data, as replicas",
        )
    elif unfed:
        context.note(
            unfed[0],
            "no DataLoader feeds this backward: every process computes the same from the same data, which is right, "
            "and no faster than one process",
        )


def _is_never_called(context: Context, call: ast.Call) -> bool:
    """Whether a backward stands in a plain function that nothing in the program calls or hands on."""
    module = context.plan.module
    function = module.function(call)
    return (
        isinstance(function, ast.FunctionDef)
        and isinstance(module.parents[function], ast.Module)
        and not context.plan.store.callers.get(function)
        and not escapes(context.plan.training, function)
    )


RULE = Rule(
    code="AM250",
    name="replicas",
    summary="Training without a DataLoader is named: several processes would be replicas.",
    why="`prepare` spreads a DataLoader's batches over processes. Data that the script slices, samples or holds "
    "whole is the same on every process, which is correct but gains nothing.",
    before="out = model(features, adj)\nloss = criterion(out[train], labels[train])\nloss.backward()",
    after="out = model(features, adj)\nloss = criterion(out[train], labels[train])\naccelerator.backward(loss)",
    safety="Where nothing is drawn, or only from a seeded generator, every process trains the same. Otherwise each may "
    "have data of its own, which only a person can judge.",
    apply=apply,
    order=70,
)

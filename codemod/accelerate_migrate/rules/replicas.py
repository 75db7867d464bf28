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
    played = [call for call in unfed if _learns_from_play(context, call)]
    if played:
        context.note(
            played[0],
            "no DataLoader feeds this backward: every process plays by itself, as a replica of the others where all "
            "draws are seeded alike; where they are not, the gradients of all plays are averaged",
        )
        unfed = [call for call in unfed if call not in played]
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


def _learns_from_play(context: Context, backward: ast.Call) -> bool:
    """Whether a backward belongs to reinforcement learning: ``state, reward, done, info = env.step(action)``."""
    training = context.plan.training
    started: set[str] = set()
    stepped: set[str] = set()
    for node in training.reached(training.callers_of(context.plan.module.function(backward))):
        call = node.value if isinstance(node, ast.Assign) else node
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        receiver = ast.unparse(call.func.value)
        if call.func.attr == "reset":
            started.add(receiver)
        elif call.func.attr == "step" and isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            if len(call.args) == 1 and len(node.targets[0].elts) in (4, 5):
                stepped.add(receiver)
    return not started.isdisjoint(stepped)


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
    safety="Reinforcement learning is noted. Where nothing is drawn, or only from a seeded generator, every process "
    "trains the same. Otherwise each may have data of its own, which only a person can judge.",
    apply=apply,
    order=70,
)

"""AM425: gradients that the script averages over processes itself are averaged by `prepare`'s wrapper."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.gradient_averaging import averages_gradients, makes_equal, wraps_by_hand
from accelerate_migrate.rules.base import Context, Rule, short


def apply(context: Context) -> None:
    """Say what `prepare` does instead; the code itself goes with the rest of the set-up of processes."""
    parallel = context.plan.parallel
    if not parallel.active:
        return
    for node in context.plan.module.walk():
        if isinstance(node, ast.For) and parallel.is_gone(node):
            if averages_gradients(parallel, node):
                context.migrated(node, "the loop that averaged the gradients over the processes: `prepare` does it")
            elif makes_equal(parallel, node):
                context.migrated(node, "the loop that made the models of all processes equal: `prepare` does it")
        elif isinstance(node, ast.Call) and parallel.is_gone(node):
            called = context.plan.store.calls.get(node, set())
            if called and all(wraps_by_hand(parallel, function) for function in called):
                context.migrated(node, f"{short(node)}: `prepare` averages the gradients over the processes")


RULE = Rule(
    code="AM425",
    name="gradient-averaging",
    summary="Gradients averaged over processes by hand are averaged by `prepare`'s wrapper.",
    why="Averaging them a second time would change nothing and cost as much again, and there is no process group to "
    "average in when the script runs alone. The wrapper averages while `backward` still runs.",
    before="def average_gradients(model):\n    for p in model.parameters():\n"
    "        dist.all_reduce(p.grad)\n        p.grad /= dist.get_world_size()\n...",
    after="...",
    safety="Exact on one process. Known are loops over a model's parameters that sum and divide by the number of "
    "processes, and functions that hang this into the model by hooks. Anything else that is done to gradients between "
    "processes refuses the file.",
    apply=apply,
    order=7,
    essential=True,
)

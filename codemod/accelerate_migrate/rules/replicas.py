"""AM250: a script without a loader would train the same thing on every process."""

from __future__ import annotations

from accelerate_migrate.rules.base import Context, Rule


def apply(context: Context) -> None:
    """Say where the data of a training loop is not spread over processes."""
    plan = context.plan
    for call in plan.training.backwards:
        if plan.training.drawn_for(call) & plan.sharded:
            continue
        if not plan.training.inside_loader_loop(call) or not plan.training.trained_loaders:
            context.review(
                call,
                "no DataLoader feeds this backward: on several processes each would train on the same data, as "
                "replicas",
            )
            return


RULE = Rule(
    code="AM250",
    name="replicas",
    summary="Training without a DataLoader is named: several processes would be replicas.",
    why="`prepare` spreads a DataLoader's batches over processes. Data that the script slices, samples or holds "
    "whole is the same on every process, which is correct but gains nothing.",
    before="out = model(features, adj)\nloss = criterion(out[train], labels[train])\nloss.backward()",
    after="out = model(features, adj)\nloss = criterion(out[train], labels[train])\naccelerator.backward(loss)",
    safety="The training is right on one process and equal on every process.",
    apply=apply,
    order=70,
)

"""AM200: a scheduler stepped once a batch is prepared, one stepped once an epoch is not."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Role, Tensor
from accelerate_migrate.analysis.schedules import counts_steps, counts_the_loader, follows_a_metric
from accelerate_migrate.rules.base import Context, Rule, short


def apply(context: Context) -> None:
    """Say for each scheduler what several processes make of it."""
    plan = context.plan
    for call in plan.training.scheduler_steps:
        sites = plan.training.receiver(call).sites(Role.SCHEDULER)
        if any(map(follows_a_metric, sites)):
            _share_metric(context, call)
        elif sites & plan.prepared:
            _prepared(context, call, all(counts_the_loader(plan.training, site) for site in sites))
        elif any(counts_steps(plan.training, site) for site in sites):
            context.note(
                call,
                f"{short(call)} runs once a batch, and training ends by the count that it is made from: not prepared, "
                "it counts the steps of each process as the loop does",
            )
        elif plan.training.inside_loader_loop(call):
            context.note(call, f"{short(call)} runs both once a batch and once an epoch; not prepared")
        else:
            context.note(
                call, f"{short(call)} runs once an epoch: not prepared, it steps as before on any number of processes"
            )


def _prepared(context: Context, call: ast.Call, counts_loader: bool) -> None:
    if counts_loader:
        context.migrated(
            call,
            f"{short(call)} runs once a batch: prepared, it advances once for each process, as its length is counted "
            "over the whole loader",
        )
    else:
        context.review(
            call,
            f"{short(call)} runs once a batch: prepared, it advances once for each process, which is right for a "
            "schedule counted over the whole loader; a schedule counted in steps of one process would run too "
            "fast",
        )


def _share_metric(context: Context, call: ast.Call) -> None:
    """A metric that is the loss of one batch is averaged over processes, or their learning rates would part."""
    sharded = context.plan.training.trained_loaders & context.plan.sharded
    metric = call.args[0] if call.args else None
    loss, read = metric, ""
    if isinstance(metric, ast.Call) and isinstance(metric.func, ast.Attribute) and metric.func.attr == "item":
        loss, read = metric.func.value, ".item()"
    tensors = context.plan.value(loss).of(Tensor) if loss is not None else []
    of_one_batch = isinstance(loss, ast.Name) and any(t.loaders & sharded for t in tensors)
    if metric is None or loss is None or not of_one_batch:
        context.note(call, f"{short(call)} follows a metric: not prepared, it steps as before")
    elif context.may_change(call) and context.has_accelerator(call):
        accelerator = context.accelerator(call)
        context.migrated(call, f"{short(call)} follows the loss of a batch, which is averaged over the processes")
        context.replace(metric, f'{accelerator}.reduce({{0}}.detach(), reduction="mean"){read}', loss)
    else:
        context.manual(
            call,
            f"{short(call)} follows the loss of one process's batch, so learning rates would part; average it first",
        )


RULE = Rule(
    code="AM200",
    name="scheduler",
    summary="A scheduler stepped once a batch is prepared; one stepped once an epoch stays as it is.",
    why="A prepared scheduler follows its optimizer and advances once for each process, so that a schedule counted "
    "in batches of the whole loader ends where it did. Stepped once an epoch, that would make it run too fast.",
    before="for x, y in loader:\n    ...\n    scheduler.step()",
    after="model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)\n"
    "for x, y in loader:\n    ...\n    scheduler.step()",
    safety="Exact on one process, and on several where the schedule's length is made from `len(loader)`. Where "
    "training ends by the count that the schedule is made from, it is not prepared; otherwise a finding says what to "
    "check. One that follows a metric is never prepared.",
    apply=apply,
    order=50,
)

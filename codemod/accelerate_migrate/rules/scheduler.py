"""AM200: a scheduler stepped once a batch is prepared, one stepped once an epoch is not."""

from __future__ import annotations

from accelerate_migrate.analysis.values import Role
from accelerate_migrate.rules.base import Context, Rule, short


def apply(context: Context) -> None:
    """Say for each scheduler what several processes make of it."""
    plan = context.plan
    for call in plan.training.scheduler_steps:
        sites = plan.training.receiver(call).sites(Role.SCHEDULER)
        if sites & plan.prepared:
            context.review(
                call,
                f"{short(call)} runs once a batch: prepared, it advances once for each process, which is right for a "
                "schedule counted over the whole loader; a schedule counted in steps of one process would run too "
                "fast",
            )
        elif plan.training.inside_loader_loop(call):
            context.note(call, f"{short(call)} runs both once a batch and once an epoch; not prepared")
        else:
            context.note(
                call, f"{short(call)} runs once an epoch: not prepared, it steps as before on any number of processes"
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
    safety="Exact on one process. On several, the finding says what to check.",
    apply=apply,
    order=50,
)

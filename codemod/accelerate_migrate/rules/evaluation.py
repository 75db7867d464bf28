"""AM210: evaluation adds up the samples of every process."""

from __future__ import annotations

from accelerate_migrate.edits import Insert
from accelerate_migrate.rules.base import Context, Rule
from accelerate_migrate.rules.layout import rebinding


def apply(context: Context) -> None:
    """Gather the rows that an evaluation loop adds up."""
    for gather in context.plan.evaluations.gathers:
        loop = gather.loop.node
        if not gather.loop.loaders <= context.plan.sharded or context.is_gone(loop):
            continue
        if not context.has_accelerator(gather.after):
            context.manual(
                loop, "this loop sees a part of the samples on several processes; the accelerator cannot be passed here"
            )
            continue
        accelerator = context.accelerator(gather.after)
        function = f"{accelerator}.gather_for_metrics"
        text = rebinding(gather.names, function, gather.after.col_offset, as_tuple=True)
        back = [f"{name} = {name}.cpu()" for name in gather.on_host]
        context.edit(Insert(gather.after, "\n".join([text, *back]), after=True))
        for node, other in gather.sizes:
            context.replace(node, other)
        names = ", ".join(f"`{n}`" for n in gather.names)
        if gather.edge is None:
            context.migrated(loop, f"{names} gathered from every process: the sums are those of the whole set")
        else:
            context.review(loop, f"{names} gathered from every process; {gather.edge}")


RULE = Rule(
    code="AM210",
    name="evaluation",
    summary="An evaluation loop gathers its outputs and targets before it adds them up.",
    why="Each process sees a part of the set. `gather_for_metrics` gives every process the rows of all of them, "
    "without the samples that were repeated to fill the last batch, so sums, accuracies and the decisions made "
    "on them are those of one process.",
    before="for x, y in loader:\n    out = model(x)\n    correct += (out.argmax(1) == y).sum().item()",
    after="for x, y in loader:\n    out = model(x)\n    out, y = accelerator.gather_for_metrics((out, y))\n"
    "    correct += (out.argmax(1) == y).sum().item()",
    safety="Exact for sums and counts. A mean over batches weighs a last batch that is not full differently; a "
    "review finding says so. A loop that cannot be gathered keeps its loader whole on every process.",
    apply=apply,
    order=41,
    essential=True,
)

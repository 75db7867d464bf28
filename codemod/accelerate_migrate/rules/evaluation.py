"""AM210: evaluation adds up the samples of every process."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.evaluation import Gather
from accelerate_migrate.edits import Insert, Replace
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
        if gather.lifted is not None:
            _lift(context, gather, gather.lifted, function, back)
        else:
            context.edit(Insert(gather.after, "\n".join([text, *back]), after=True))
        for node, other in gather.sizes:
            context.replace(node, other)
        names = ", ".join(f"`{n}`" for n in gather.names)
        context.migrated(loop, f"{names} gathered from every process: the sums are those of the whole set")


def _lift(context: Context, gather: Gather, call: ast.Call, function: str, back: list[str]) -> None:
    """Call the model in front of the statement that computes with its output, and gather what it gives there."""
    holes = (call.func, *call.args, *(k.value for k in call.keywords))
    arguments = [f"{{{i}}}" for i in range(1, len(call.args) + 1)]
    arguments += [f"{k.arg}={{{i}}}" for i, k in enumerate(call.keywords, len(call.args) + 1)]
    called = f"{{0}}({', '.join(arguments)})"
    given = f"({', '.join([called, *gather.names[1:]])})" if len(gather.names) > 1 else called
    text = f"{', '.join(gather.names)} = {function}({given})"
    context.edit(Insert(gather.after, "\n".join([text, *back]), holes))
    context.edit(Replace(call, gather.names[0]))


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
    safety="Exact: only what is summed or counted, or collected sample by sample, is gathered. A loop that adds up "
    "means of batches, or cannot be gathered, keeps its loader whole on every process.",
    apply=apply,
    order=41,
    essential=True,
)

"""AM170: seeds stay; a CUDA seed that repeats the general one goes."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Origin, Tensor
from accelerate_migrate.analysis.devices import is_device_flag
from accelerate_migrate.analysis.library import CUDA_SEEDS
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import if_around, library_calls, own_statement


def apply(context: Context) -> None:
    """Drop ``torch.cuda.manual_seed(seed)`` next to ``torch.manual_seed(seed)``; say what a common seed means."""
    calls = list(library_calls(context.plan))
    general = {ast.unparse(c.args[0]): c for c, names in calls if names == {"torch.manual_seed"} and c.args}
    for call, names in calls:
        if not names <= CUDA_SEEDS or not context.may_change(call):
            continue
        statement = own_statement(context.plan, call)
        if statement is None or not call.args or ast.unparse(call.args[0]) not in general:
            context.note(call, f"{short(call)} seeds CUDA alone; left as it is, it does nothing on other devices")
            continue
        context.migrated(call, f"{short(call)}: torch.manual_seed seeds every device")
        around = if_around(context.plan, statement)
        guarded = around is not None and is_device_flag(context.plan.training, around.test)
        context.delete(around if around is not None and guarded else statement)
    if general and _draws_while_training(context):
        context.note(
            next(iter(general.values())),
            "every process starts from this seed, so random tensors drawn in the training loop are the same on each",
        )


def _draws_while_training(context: Context) -> bool:
    for loop in context.plan.training.loops:
        if not loop.trains:
            continue
        for node in context.plan.module.walk(loop.node):
            if isinstance(node, ast.Call) and any(
                isinstance(a, Tensor) and a.origin is Origin.FRESH for a in context.plan.value(node)
            ):
                if isinstance(node.func, ast.Attribute) and node.func.attr.startswith("rand"):
                    return True
    return False


RULE = Rule(
    code="AM170",
    name="seeds",
    summary="`torch.manual_seed` stays; `torch.cuda.manual_seed` with the same seed goes.",
    why="`torch.manual_seed` seeds every device. Models start equal on every process, which is right; random tensors "
    "drawn in the loop are equal too, which a note says.",
    before="torch.manual_seed(args.seed)\nif args.cuda:\n    torch.cuda.manual_seed(args.seed)",
    after="torch.manual_seed(args.seed)",
    safety="Exact.",
    apply=apply,
    order=12,
)

"""AM160: gradients are clipped through the accelerator."""

from __future__ import annotations

from accelerate_migrate.analysis.library import CLIPPERS
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import library_calls

_UNDERSTOOD = {"parameters", "max_norm", "norm_type", "clip_value"}


def apply(context: Context) -> None:
    """Rewrite ``torch.nn.utils.clip_grad_*``."""
    for call, names in library_calls(context.plan):
        if not names <= set(CLIPPERS) or not context.may_change(call):
            continue
        extra = [k.arg for k in call.keywords if k.arg not in _UNDERSTOOD]
        if extra or not context.has_accelerator(call):
            reason = (
                f"the argument `{extra[0]}` has no counterpart" if extra else "the accelerator cannot be passed here"
            )
            context.manual(call, f"{short(call)}: {reason}; left as it is")
            continue
        method = f"{context.accelerator(call)}.{CLIPPERS[next(iter(names))]}"
        context.migrated(call, f"{short(call.func)} -> {method}")
        context.replace(call.func, method)
        context.unscaling.add(call)


RULE = Rule(
    code="AM160",
    name="clipping",
    summary="`torch.nn.utils.clip_grad_norm_` and `clip_grad_value_` become the accelerator's.",
    why="Gradients must be unscaled before they are clipped in fp16, clipped only when they are complete under "
    "gradient accumulation, and the norm of sharded gradients is a sum over processes.",
    before="torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    after="accelerator.clip_grad_norm_(model.parameters(), 1.0)",
    safety="Exact. A call with `error_if_nonfinite` or `foreach` is left and named.",
    apply=apply,
    order=12,
)

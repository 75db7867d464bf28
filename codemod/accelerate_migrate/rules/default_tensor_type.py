"""AM118: a default tensor type of CUDA becomes a default device."""

from __future__ import annotations

from accelerate_migrate.analysis.tensor_types import DEFAULT_DTYPE, tensor_type, torch_name
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import library_calls, own_statement


def apply(context: Context) -> None:
    """``torch.set_default_tensor_type(torch.cuda.FloatTensor)`` sets the accelerator's device as the default one."""
    for call, names in library_calls(context.plan):
        if names != {"torch.set_default_tensor_type"} or len(call.args) != 1 or not context.may_change(call):
            continue
        known = tensor_type(context.plan.value(call.args[0]))
        if known is not None and not known.cuda:
            continue
        statement = own_statement(context.plan, call)
        torch = torch_name(context.plan.module, call)
        if known is None or torch is None or statement is None or not context.has_accelerator(call):
            context.manual(
                call,
                f"{short(call)} makes tensors on CUDA where nothing says so; give each its device and remove this",
            )
            continue
        text = f"{torch}.set_default_device({context.device(call)})"
        if known.dtype != DEFAULT_DTYPE:
            text = f"{torch}.set_default_dtype({torch}.{known.dtype}); {text}"
        context.replace_statement(statement, text)
        context.review(
            call,
            f"{short(call)} -> {text}: tensors are made on the accelerator's device from here on, but not those of "
            "torch.from_numpy or of NumPy; a DataLoader that shuffles needs a generator of that device",
        )


RULE = Rule(
    code="AM118",
    name="default-tensor-type",
    summary="`torch.set_default_tensor_type` of a CUDA type becomes `torch.set_default_device`.",
    why="Under such a default every tensor is made on CUDA without a word. The default device says the same for every "
    "kind of accelerator, and is each process's own.",
    before="torch.set_default_tensor_type(torch.cuda.FloatTensor)",
    after="torch.set_default_device(accelerator.device)",
    safety="The same random numbers are drawn on the same device. `torch.Tensor(...)`, which a default device does "
    "not reach, is given it by name. To be reviewed: what other files make under this default.",
    apply=apply,
    order=9,
)

"""AM130: gradients start through the accelerator."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Number, Reduction, Tensor
from accelerate_migrate.analysis.clearing import are_cleared
from accelerate_migrate.analysis.reuse import repeated_backwards
from accelerate_migrate.rules.base import Context, Rule, short


def apply(context: Context) -> None:
    """Rewrite each ``loss.backward(...)``."""
    for call in context.plan.training.backwards:
        if not context.may_change(call):
            continue
        if not context.has_accelerator(call):
            context.manual(
                call, f"{short(call)}: the accelerator cannot be passed here; call accelerator.backward(loss)"
            )
            continue
        _rewrite(context, call)
    _name_repeated(context)
    for call in context.plan.training.foreign_backwards:
        context.manual(call, f"{short(call)} is not the backward of a loss tensor; left as it is")


def _rewrite(context: Context, call: ast.Call) -> None:
    assert isinstance(call.func, ast.Attribute)
    loss = call.func.value
    said = short(context.plan.training.unscaled(loss))
    accelerator = context.accelerator(call)
    holes: list[ast.expr] = [loss]
    arguments = ["{0}"]
    if _is_sum(context, loss):
        arguments = [f"{{0}} * {accelerator}.num_processes"]
        context.migrated(
            call,
            f"{short(call)} -> {accelerator}.backward(...): this loss is a sum over the batch; processes average their "
            "gradients, so it is multiplied by the number of processes to keep the gradient of the global batch",
        )
    elif any(isinstance(a, Tensor) and a.reduction is Reduction.MIXED for a in context.plan.value(loss)):
        context.review(
            call,
            f"{short(call)} -> {accelerator}.backward({said}): this loss contains sums over the batch, and "
            "processes average their gradients; if it grows with the batch, multiply it by the number of processes",
        )
    else:
        context.migrated(call, f"{short(call)} -> {accelerator}.backward({said})")
    names = ("gradient", "retain_graph", "create_graph", "inputs")
    for name, value in [*zip(names, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]:
        arguments.append(f"{name}={{{len(holes)}}}" if name else f"**{{{len(holes)}}}")
        holes.append(value)
    context.replace(call, f"{accelerator}.backward({', '.join(arguments)})", *holes)


def _name_repeated(context: Context) -> None:
    for call, models in repeated_backwards(context.plan.training, context.plan.prepared).items():
        if context.is_gone(call):
            continue
        used = frozenset(model for model in models if not are_cleared(context.plan.training, call, model))
        named = " and ".join(sorted({f"`{h.name}`" for h in context.plan.homes if h.sites & (used or models)}))
        if not used:
            context.note(
                call,
                f"a second backward through one forward of {named or 'the model'}: on several processes these "
                "gradients are not averaged, and they are cleared before anything steps on them",
            )
            continue
        context.review(
            call,
            f"a second backward through one forward of {named or 'the model'}: on several processes these gradients "
            "are not averaged, and the processes drift apart; add the losses up for one backward, or run the forward "
            "again",
        )


def _is_sum(context: Context, loss: ast.expr) -> bool:
    tensors = [a for a in context.plan.value(loss) if isinstance(a, (Tensor, Number))]
    loaders = {s for t in tensors for s in t.loaders}
    certain = len(tensors) == len(context.plan.value(loss).atoms) and bool(loaders & context.plan.sharded)
    return certain and all(t.reduction is Reduction.SUM for t in tensors)


RULE = Rule(
    code="AM130",
    name="backward",
    summary="`loss.backward()` becomes `accelerator.backward(loss)`.",
    why="The accelerator scales the loss for fp16, divides it under gradient accumulation and lets engines that own "
    "the backward pass run it. Gradient arguments keep their names; a loss that is a sum over the batch is "
    "multiplied by the number of processes, since processes average their gradients.",
    before="loss = criterion(model(x), y)\nloss.backward(retain_graph=True)",
    after="loss = criterion(model(x), y)\naccelerator.backward(loss, retain_graph=True)",
    safety="Exact. A second backward through one forward of a model, whose gradients processes would not average, is "
    "named for review. `torch.autograd.backward` and backward methods of classes are left and named.",
    apply=apply,
    order=40,
    essential=True,
)

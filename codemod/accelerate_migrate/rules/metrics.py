"""AM220: sums of a training loop that are divided by the whole set cover the whole set."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.accumulation import is_divided_by_samples, is_sample_count
from accelerate_migrate.analysis.values import Number, Reduction, Tensor
from accelerate_migrate.rules.base import Context, Rule


def apply(context: Context) -> None:
    """Reduce ``total += loss.item()`` over processes where ``total / len(loader.dataset)`` follows."""
    for loop in context.plan.training.loops:
        if not loop.trains or not loop.loaders & context.plan.sharded:
            continue
        for node in context.plan.module.walk(loop.node):
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and context.may_change(node):
                _accumulation(context, loop.node, node)


def _accumulation(context: Context, loop: ast.For | ast.AsyncFor, node: ast.AugAssign) -> None:
    added = [a for a in context.plan.value(node.value) if isinstance(a, (Tensor, Number)) and a.loaders]
    target = ast.unparse(node.target)
    if not added:
        return
    if _divided_by_dataset(context, loop, target):
        if not _reduce(context, node, "sum"):
            context.review(
                node, f"`{target}` is divided by the size of the whole set, but each process adds up its own part only"
            )
            return
        context.review(
            node,
            f"`{target}` is divided by the size of the whole set: it is summed over processes (samples repeated to "
            "fill the last batch count twice)",
        )
    elif _decides(context, loop, target):
        kinds = {a.reduction for a in added}
        if kinds == {Reduction.COUNT} and _item(context, node.value) is None:
            _count(context, loop, node)
        elif _reduce(context, node, "sum" if kinds <= {Reduction.SUM, Reduction.COUNT} else "mean"):
            context.migrated(node, f"`{target}` is used beyond a progress line: every process gets the same number")
        else:
            context.review(
                node,
                f"`{target}` is used beyond a progress line, and each process computes it from its own part of the "
                "data: a decision made on it may differ between processes, which would leave them waiting for each "
                "other",
            )


def _count(context: Context, loop: ast.For | ast.AsyncFor, node: ast.AugAssign) -> None:
    """``seen += y.size(0)`` counts for all processes where the sums beside it add up for all."""
    target = ast.unparse(node.target)
    left = [
        ast.unparse(other.target)
        for other in ast.walk(loop)
        if isinstance(other, ast.AugAssign)
        and not is_sample_count(context.plan.training, other.value)
        and any(isinstance(a, (Tensor, Number)) and a.loaders for a in context.plan.value(other.value))
        and (_item(context, other.value) is None or not _decides(context, loop, ast.unparse(other.target)))
    ]
    if left or not context.has_accelerator(node):
        beside = f", like `{left[0]}` beside it" if left else ""
        context.review(node, f"`{target}` counts the samples of each process for itself{beside}")
        return
    context.replace(node.value, f"{{0}} * {context.accelerator(node)}.num_processes", node.value)
    context.migrated(node, f"`{target}` counts the samples of every process")


def _item(context: Context, value: ast.expr) -> ast.Call | None:
    """The ``tensor.item()`` that is added, itself or times a number of samples; none where it is written otherwise."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        if is_sample_count(context.plan.training, value.right):
            value = value.left
        elif is_sample_count(context.plan.training, value.left):
            value = value.right
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "item":
        return value
    return None


def _reduce(context: Context, node: ast.AugAssign, how: str) -> bool:
    """Reduce the tensor of ``total += tensor.item()`` over processes; false where it is not written so."""
    item = _item(context, node.value)
    if item is None or not context.has_accelerator(node):
        return False
    assert isinstance(item.func, ast.Attribute)
    tensor = item.func.value
    if item is not node.value:
        how = "sum"  # times a number of samples, which is the same on every process
    detach = ".detach()" if _has_gradient(context, tensor) else ""
    context.replace(item, f'{context.accelerator(node)}.reduce({{0}}{detach}, reduction="{how}").item()', tensor)
    return True


def _has_gradient(context: Context, tensor: ast.expr) -> bool:
    if not any(isinstance(a, Tensor) and a.models for a in context.plan.value(tensor)):
        return False
    ends = ("detach", "eq", "ne", "argmax")
    return not any(
        isinstance(n, ast.Compare) or (isinstance(n, ast.Attribute) and n.attr in ends) for n in ast.walk(tensor)
    )


def _divided_by_dataset(context: Context, loop: ast.For | ast.AsyncFor, target: str) -> bool:
    own_total = any(
        isinstance(n, ast.AugAssign)
        and ast.unparse(n.target) != target
        and is_sample_count(context.plan.training, n.value)
        for n in ast.walk(loop)
    )
    return not own_total and is_divided_by_samples(context.plan.training, loop, target)


def _decides(context: Context, loop: ast.For | ast.AsyncFor, target: str) -> bool:
    """Whether a number is returned, compared or followed by a scheduler behind the loop."""
    scope = context.plan.module.function(loop)
    for node in context.plan.module.walk(scope):
        if getattr(node, "lineno", 0) <= (loop.end_lineno or 0):
            continue
        scheduled = isinstance(node, ast.Call) and node in context.plan.training.scheduler_steps
        if isinstance(node, (ast.Return, ast.Compare)) or scheduled:
            if target in {ast.unparse(n) for n in ast.walk(node) if isinstance(n, ast.expr)}:
                return True
    return False


RULE = Rule(
    code="AM220",
    name="metrics",
    summary="A training sum that covers the whole set, or decides something, is reduced over processes.",
    why="Each process sees its part of the set: `total / len(loader.dataset)` would come out too small by their "
    "number.",
    before="for x, y in loader:\n    ...\n    total += loss.item()\nprint(total / len(loader.dataset))",
    after='for x, y in loader:\n    ...\n    total += accelerator.reduce(loss.detach(), reduction="sum").item()\n'
    "accelerator.print(total / len(loader.dataset))",
    safety="Exact on one process. A number that decides something is averaged or summed over processes, so that all "
    "decide alike; where it is not written as `total += tensor.item()` it gets a review finding.",
    apply=apply,
    order=41,
)

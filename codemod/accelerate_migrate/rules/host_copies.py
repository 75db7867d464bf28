"""AM125: a batch that the script used on the CPU is brought back there."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Origin, Role, Tensor
from accelerate_migrate.analysis.library_arrays import ARRAY_LIBRARIES
from accelerate_migrate.analysis.values import Value
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import library_names


def apply(context: Context) -> None:
    """Put ``.cpu()`` where an element of a prepared loader, never moved, goes to NumPy or meets a CPU tensor."""
    for node in context.plan.module.walk():
        if not isinstance(node, ast.expr) or not context.may_change(node):
            continue
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "numpy" and not node.args:
                _bring_back(context, node.func.value)
            names = library_names(context.plan, node.func)
            if names and all(n.startswith(ARRAY_LIBRARIES) for n in names):
                for argument in node.args:
                    _bring_back(context, argument)
        parts = _meeting(context, node)
        if any(_on_host(context.plan.value(part)) for part in parts):
            for part in parts:
                _bring_back(context, part)


def _meeting(context: Context, node: ast.expr) -> list[ast.expr]:
    """The expressions whose tensors must be on one device for this operation."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if not isinstance(node, ast.Call):
        return []
    names = library_names(context.plan, node.func)
    if isinstance(node.func, ast.Attribute) and _on_host(context.plan.value(node.func.value)):
        return [node.func.value, *node.args]
    if (names and all(n.startswith("torch.") for n in names)) or context.plan.value(node.func).sites(Role.LOSS):
        listed = [a.elts if isinstance(a, (ast.List, ast.Tuple)) else [a] for a in node.args]
        return [part for parts in listed for part in parts]
    return []


def _bring_back(context: Context, node: ast.expr) -> None:
    tensors = context.plan.value(node).of(Tensor)
    drawn = bool(tensors) and all(t.origin is Origin.BATCH and t.loaders <= context.plan.sharded for t in tensors)
    if drawn and len(tensors) == len(context.plan.value(node).atoms) and context.may_change(node):
        context.replace(node, "{0}.cpu()", node)
        context.migrated(node, f"{short(node)} comes on the accelerator's device now, and is used on the CPU here")


def _on_host(one: Value) -> bool:
    """A tensor that was brought to the CPU."""
    return any(isinstance(a, Tensor) and a.origin is Origin.FRESH and (a.loaders or a.models) for a in one)


RULE = Rule(
    code="AM125",
    name="host-copies",
    summary="An element of a prepared loader that the script used on the CPU gets a `.cpu()` there.",
    why="A prepared loader gives batches on the accelerator's device. What the script handed to NumPy or combined with "
    "CPU tensors, without having moved it, must be brought back.",
    before="for x, y in loader:\n    labels.extend(y.numpy())",
    after="for x, y in loader:\n    labels.extend(y.cpu().numpy())",
    safety="Exact: on the CPU it does nothing.",
    apply=apply,
    order=22,
    essential=True,
)

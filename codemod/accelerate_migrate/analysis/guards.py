"""Code that only runs where the script found CUDA: what stands there may need it."""

from __future__ import annotations

import ast
import re

from accelerate_migrate.analysis.devices import availability, is_flag
from accelerate_migrate.analysis.training import Training

_NAMED = re.compile("cuda|gpu", re.IGNORECASE)


def asks_for_cuda(training: Training, test: ast.expr) -> bool:
    """Whether a condition asks for CUDA: if it is available, wanted by a flag, or what a device or tensor is on."""
    for node in training.module.walk(test):
        if isinstance(node, ast.expr) and is_flag(training, node):
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda"):
            return True
        if isinstance(node, ast.Call) and "torch.cuda.device_count" in training.library_names(node.func):
            return True
        if isinstance(node, ast.Attribute) and _NAMED.search(node.attr):
            return True
        if isinstance(node, ast.Name) and _NAMED.search(node.id):
            return True
    return False


def runs_with_cuda_only(training: Training, node: ast.AST) -> bool:
    """Whether a node is in a branch that a condition on CUDA leads to."""
    child = node
    for around in training.module.ancestors(node):
        if isinstance(around, (ast.If, ast.While)) and child in around.body and asks_for_cuda(training, around.test):
            return True
        if isinstance(around, ast.IfExp) and child is around.body and asks_for_cuda(training, around.test):
            return True
        if isinstance(around, ast.BoolOp) and isinstance(around.op, ast.And) and child in around.values:
            if any(asks_for_cuda(training, v) for v in around.values[: around.values.index(child)]):
                return True
        child = around
    return False


def is_availability(training: Training, test: ast.expr) -> bool:
    """Whether a condition is ``torch.cuda.is_available()`` and nothing else."""
    known = availability(training.value(test))
    return known is not None and known.exact and not known.rest

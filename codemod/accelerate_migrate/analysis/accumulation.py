"""What a loop adds up, and what becomes of the sum behind it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelerate_migrate.analysis.atoms import Number, Reduction
from accelerate_migrate.analysis.training import Training


def additions(training: Training, node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The accumulator and the expression added to it, where this very node adds something up.

    ``total += x``, ``total = total + x``, ``results.append(x)`` and ``meter.update(x)``; not ``meter.update(x, n)``
    with a number of samples, which weighs what it adds.
    """
    if isinstance(node, ast.AugAssign):
        yield node.target, node.value
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        if ast.unparse(node.value.left) == ast.unparse(node.targets[0]):
            yield node.targets[0], node.value.right
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        weighted = any(is_sample_count(training, argument) for argument in node.args[1:])
        if node.func.attr in ("append", "update", "add") and not weighted:
            yield node.func.value, node.args[0]


def is_sample_count(training: Training, node: ast.expr) -> bool:
    """Whether an expression may be a number of samples, like ``x.size(0)``."""
    return any(number.reduction is Reduction.COUNT for number in training.value(node).of(Number))


def is_divided_by_samples(training: Training, near: ast.AST, accumulator: str) -> bool:
    """Whether the function around ``near`` divides an accumulator, given by its source, by a number of samples."""
    for node in training.module.walk(training.module.function(near)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            divided, by = node.left, node.right
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            divided, by = node.target, node.value
        else:
            continue
        if accumulator not in {ast.unparse(n) for n in ast.walk(divided) if isinstance(n, ast.expr)}:
            continue
        if _counts_batches(training, by):
            continue
        text = ast.unparse(by) + _definition(training, by)
        of_dataset = ".dataset" in text or ("len(" in text and "data" in text and "loader" not in text)
        if of_dataset or is_sample_count(training, by):
            return True
    return False


def _counts_batches(training: Training, node: ast.expr) -> bool:
    """Whether an expression is the length of a loader, or of what draws from one."""
    return any(
        isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Name)
        and inner.func.id == "len"
        and any(training.loaders_of(training.value(argument)) for argument in inner.args)
        for inner in ast.walk(node)
    )


def _definition(training: Training, node: ast.expr) -> str:
    """The source of what a name, or the container whose element this is, was bound to in the file."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    for statement in training.module.walk():
        if isinstance(statement, ast.Assign) and any(ast.unparse(t) == node.id for t in statement.targets):
            return " " + ast.unparse(statement.value)
    return ""

"""Gradients that the script makes itself: no backward averages them over processes, so the script is left whole."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.unclear import Unclear

_HOOKS = ("register_forward_pre_hook", "register_backward_hook", "register_full_backward_hook")


def check_gradients(training: Training) -> None:
    """Raise ``Unclear`` where gradients are written by hand, or an optimizer reads them by hooks of its own."""
    mine = set(training.module.walk())
    for site in sorted(training.optimizers, key=lambda s: (s.line, s.column)):
        made_by = training.store.details[site].class_def
        hooks = made_by is not None and any(
            isinstance(node, ast.Attribute) and node.attr in _HOOKS for node in ast.walk(made_by.node)
        )
        if hooks:
            raise Unclear(
                f"`{site.made_by}` reads gradients by hooks of its own, before processes have averaged them",
                next((n for n in training.store.details[site].nodes if n in mine), training.backwards[0]),
            )
    for node in training.reached(file.tree for file in training.module.active):
        if _writes_gradient(node):
            where = node if node in mine else training.backwards[0]
            text = ast.unparse(node)
            raise Unclear(f"gradients are written by hand (`{text}`), which several processes would not average", where)


def _writes_gradient(node: ast.AST) -> bool:
    """``p.grad = g`` and ``p.grad.copy_(g)``; not ``p.grad = None``, nor what changes the gradient there is."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Attribute) and target.attr in ("grad", "data"):
                written = target if target.attr == "grad" else target.value
                if not (isinstance(written, ast.Attribute) and written.attr == "grad"):
                    continue
                cleared = isinstance(node.value, ast.Constant) and node.value.value is None
                return not cleared and not _reads(node.value, ast.unparse(written))
        return False
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "copy_" and node.args:
        written = node.func.value
        if isinstance(written, ast.Attribute) and written.attr == "data":
            written = written.value
        is_gradient = isinstance(written, ast.Attribute) and written.attr == "grad"
        return is_gradient and not _reads(node.args[0], ast.unparse(written))
    return False


def _reads(value: ast.expr, text: str) -> bool:
    return any(isinstance(n, ast.Attribute) and ast.unparse(n) == text for n in ast.walk(value))

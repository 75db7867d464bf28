"""Whether a loop goes through all of its batches."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.modules import Tree


def leaves_batches_out(module: Tree, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop may stop early or skip a batch: with other batches, it would do so elsewhere.

    ``if args.dry_run: break`` is not counted: it says nothing of the batches.
    """
    for node in module.walk(loop):
        if isinstance(node, (ast.Break, ast.Continue)):
            if module.loop_around(node) is loop and not _is_switch(module, loop, node):
                return True
        elif isinstance(node, ast.Return) and module.function(node) is module.function(loop):
            return True
    return False


def _is_switch(module: Tree, loop: ast.For | ast.AsyncFor, node: ast.stmt) -> bool:
    """Whether a statement runs for every batch or for none, as a setting says."""
    around = module.parents[node]
    if not isinstance(around, ast.If) or module.parents[around] is not loop:
        return False
    bound = {n.id for n in module.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    asked = list(ast.walk(around.test))
    return not any(isinstance(n, ast.Call) or (isinstance(n, ast.Name) and n.id in bound) for n in asked)

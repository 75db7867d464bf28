"""AM275: an `if` that the migration left nothing to do goes."""

from __future__ import annotations

import ast

from accelerate_migrate.edits import ReplaceStatement
from accelerate_migrate.rules.base import Context, Rule, short


def apply(context: Context) -> None:
    """Delete every ``if`` whose statements are all gone and whose test does nothing, innermost first."""
    parallel = context.plan.parallel
    replaced = {edit.node for edit in context.edits if isinstance(edit, ReplaceStatement)}
    nodes = [n for n in context.plan.module.walk() if isinstance(n, ast.If)]
    for node in reversed(nodes):
        if context.is_gone(node) or not context.may_change(node.test):
            continue
        if not parallel.is_pure(node.test) or node in parallel.kept:
            continue
        statements = [*node.body, *node.orelse]
        if (
            replaced.isdisjoint(statements)
            and all(s in context.gone or isinstance(s, ast.Pass) for s in statements)
            and any(s in context.gone for s in statements)
        ):
            context.migrated(node, f"`if {short(node.test)}` has nothing left to do")
            context.delete(node)


RULE = Rule(
    code="AM275",
    name="emptied",
    summary="An `if` of which nothing is left goes.",
    why="What it chose between (moves, wrappers, process groups) is done by `prepare` and the launcher.",
    before="if args.gpu is not None:\n    model.cuda(args.gpu)\nelse:\n    model.cuda()",
    after="",
    safety="Exact: only where every statement of all its branches went, and its test does nothing else.",
    apply=apply,
    order=79,
)

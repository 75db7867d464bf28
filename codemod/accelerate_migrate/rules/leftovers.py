"""AM270: names that the migration left unused go."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.devices import availability
from accelerate_migrate.analysis.values import is_device
from accelerate_migrate.rules.base import Context, Rule


def apply(context: Context) -> None:
    """Delete ``use_cuda = torch.cuda.is_available()`` where every read of it is gone."""
    plan = context.plan
    for node in plan.module.walk():
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
            continue
        one = plan.value(node.value)
        if context.is_gone(node) or not context.may_change(node) or (availability(one) is None and not is_device(one)):
            continue
        loads = _loads(context, node.targets[0])
        name = ast.unparse(node.targets[0])
        if loads and name not in plan.placement.cpu_reads and all(context.is_gone(n) for n in loads):
            context.migrated(node, f"`{name}` has no use any more")
            context.delete(node)


def _loads(context: Context, target: ast.expr) -> list[ast.AST]:
    """The reads of a variable, or of an attribute of an object that is not handed on whole; none where it may be."""
    module = context.plan.module
    loads = [n for n in module.walk() if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)]
    if isinstance(target, ast.Name):
        root = module.root(target)
        return [n for n in loads if isinstance(n, ast.Name) and n.id == target.id and module.root(n) is root]
    if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)) or target.value.id == "self":
        return []
    owner = target.value.id
    if any(
        isinstance(n, ast.Name) and n.id == owner and not isinstance(module.parents[n], ast.Attribute) for n in loads
    ):
        return []
    return [n for n in loads if isinstance(n, ast.Attribute) and ast.unparse(n) == ast.unparse(target)]


RULE = Rule(
    code="AM270",
    name="leftovers",
    summary="Variables that chose the device and have no use any more go.",
    why="A reviewer should not have to wonder what a variable is for.",
    before="use_cuda = torch.cuda.is_available()\nif use_cuda:\n    model.cuda()",
    after="",
    safety="Exact: only a variable that was read before, and whose every read is gone.",
    apply=apply,
    order=80,
)

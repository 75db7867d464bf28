"""AM270: names that the migration left unused go."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.devices import availability
from accelerate_migrate.analysis.values import is_device
from accelerate_migrate.rules.base import Context, Rule


def apply(context: Context) -> None:
    """Delete ``use_cuda = torch.cuda.is_available()`` where every read of it is gone."""
    plan = context.plan
    cpu = plan.placement.cpu
    wanted = {n.id for n in ast.walk(ast.parse(cpu)) if isinstance(n, ast.Name)} if cpu else set()
    for node in ast.walk(plan.module.tree):
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
            continue
        one = plan.value(node.value)
        if context.is_gone(node) or not context.may_change(node) or availability(one) is None and not is_device(one):
            continue
        name = node.targets[0].id
        loads = [n for n in ast.walk(plan.module.tree) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
        if loads and name not in wanted and all(context.is_gone(n) for n in loads):
            context.migrated(node, f"`{name}` has no use any more")
            context.delete(node)


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

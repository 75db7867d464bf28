"""AM270: names that the migration left unused go."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis import processes
from accelerate_migrate.analysis.atoms import ClassRef, Library, Role
from accelerate_migrate.analysis.devices import availability
from accelerate_migrate.analysis.flags import is_about_device
from accelerate_migrate.analysis.modes import DTYPES
from accelerate_migrate.analysis.values import Value, is_device
from accelerate_migrate.rules.base import Context, Rule


def apply(context: Context) -> None:
    """Delete ``use_cuda = torch.cuda.is_available()`` where every read of it is gone."""
    plan = context.plan
    _optional_imports(context)
    _empty_constructors(context)
    for node in plan.module.walk():
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
            continue
        one = plan.value(node.value)
        chosen = availability(one) is not None or is_device(one) or _is_dtype(one)
        chosen = chosen or (isinstance(node.value, ast.Compare) and is_about_device(plan.training, node.value))
        chosen = chosen or processes.share(one) is not None
        if context.is_gone(node) or not context.may_change(node) or not chosen:
            continue
        loads = _loads(context, node.targets[0])
        name = ast.unparse(node.targets[0])
        read = plan.placement.cpu_reads | context.reads
        if loads and name not in read and all(context.is_gone(n) for n in loads):
            context.migrated(node, f"`{name}` has no use any more")
            context.delete(node)


def _optional_imports(context: Context) -> None:
    """Imports of mixed precision under ``if`` and ``try``, with what stands in for them, where no use is left."""
    module = context.plan.module
    for node in module.walk():
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or context.is_gone(node):
            continue
        around = context.parent(node)
        if not isinstance(around, (ast.If, ast.Try)) or not all(_is_of_precision(context, a) for a in node.names):
            continue
        names = {alias.asname or alias.name.split(".")[0] for alias in node.names}
        loads = [n for n in module.walk() if isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Load)]
        if not loads or not all(context.is_gone(n) for n in loads):
            continue
        if isinstance(around, ast.If):
            context.delete_emptying(node)
        elif around.body == [node] and not around.orelse and not around.finalbody and _stands_in(around, names):
            context.delete_emptying(around)
        else:
            continue
        context.migrated(node, f"`{ast.unparse(node)}` has no use any more")


def _empty_constructors(context: Context) -> None:
    """``__init__`` of a plain class, of which nothing is left and to which nothing comes."""
    placement = context.plan.placement
    for owner in context.plan.module.walk():
        if not isinstance(owner, ast.ClassDef) or owner.bases or owner in placement.carriers or len(owner.body) < 2:
            continue
        for made in owner.body:
            if isinstance(made, ast.FunctionDef) and made.name == "__init__" and made not in placement.needed:
                if all(map(context.is_gone, made.body)):
                    context.delete(made)


def _is_of_precision(context: Context, alias: ast.alias) -> bool:
    statement = context.parent(alias)
    module = statement.module or "" if isinstance(statement, ast.ImportFrom) else ""
    name = f"{module}.{alias.name}" if module else alias.name
    return name.startswith(("torch.cuda.amp", "torch.amp", "apex"))


def _stands_in(around: ast.Try, names: set[str]) -> bool:
    """Whether the handlers do nothing but complain, or define the very names that could not be imported."""
    return all(
        isinstance(s, (ast.Raise, ast.Expr, ast.Pass))
        or (isinstance(s, (ast.ClassDef, ast.FunctionDef)) and s.name in names)
        or (isinstance(s, ast.Assign) and all(isinstance(t, ast.Name) and t.id in names for t in s.targets))
        for handler in around.handlers
        for s in handler.body
    )


def _is_dtype(one: Value) -> bool:
    """Whether a value is a dtype that an autocast may have."""
    return one.only(Library) and all(a.name.rsplit(".", 1)[-1] in DTYPES for a in one.of(Library))


def _loads(context: Context, target: ast.expr) -> list[ast.AST]:
    """The reads of a variable, or of an attribute of an object that is not handed on whole; none where it may be."""
    module = context.plan.module
    loads = [n for n in module.walk() if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)]
    if isinstance(target, ast.Name):
        scope = module.function(target)
        if isinstance(scope, ast.Module) and (file := module.module_of(scope)) is not None:
            exported = context.plan.store.exported[file]
            if target.id in exported:
                return []  # another file imports it
            if "*" in exported:
                return [n for n in module.everywhere() if isinstance(n, ast.Name) and n.id == target.id and n in loads]
        inside = set(module.walk(scope))
        return [n for n in loads if isinstance(n, ast.Name) and n.id == target.id and n in inside]
    if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)):
        return []
    if target.value.id == "self":
        return _loads_of_field(context, target)
    owner = target.value.id
    if any(
        isinstance(n, ast.Name) and n.id == owner and not isinstance(module.parents[n], ast.Attribute) for n in loads
    ):
        return []
    return [n for n in loads if isinstance(n, ast.Attribute) and ast.unparse(n) == ast.unparse(target)]


def _loads_of_field(context: Context, target: ast.Attribute) -> list[ast.AST]:
    """The reads of ``self.device`` where the class keeps the accelerator, of which every user is known."""
    module = context.plan.module
    if module.class_of(module.function(target)) not in context.plan.placement.carriers:
        return []
    everywhere = [n for n in module.everywhere() if isinstance(n, ast.Attribute) and n.attr == target.attr]
    return [n for n in everywhere if isinstance(n.ctx, ast.Load) and not _is_of_model(context, n)]


def _is_of_model(context: Context, node: ast.Attribute) -> bool:
    """Whether a method of a model asks this of something that it is given: a tensor, not the trainer."""
    module = context.plan.module
    owner, file = module.class_of(module.function(node)), module.module_of(node)
    if owner is None or file is None or (isinstance(node.value, ast.Name) and node.value.id == "self"):
        return False
    return context.plan.store.class_role(ClassRef(owner, file)) is Role.MODEL


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

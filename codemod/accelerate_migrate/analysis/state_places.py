"""Where a state is loaded: only behind the ``prepare`` of everything that it holds."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Object, Role, Site
from accelerate_migrate.analysis.groups import Group
from accelerate_migrate.analysis.plan import Plan
from accelerate_migrate.analysis.scopes import assigned_targets
from accelerate_migrate.analysis.state_files import Kept, ResumedState

_ASKING = frozenset({"os.path.isfile", "os.path.exists", "os.path.isdir", "builtins.len"})
_HARMLESS = frozenset({"parameters", "named_parameters", "train", "eval", "to", "cuda", "module", "float", "double"})


def place(plan: Plan, wanted: frozenset[Site], resume: ResumedState) -> None:
    """Decide where the state is loaded: in the place of the first load, or behind the ``prepare`` that follows it.

    ``wanted`` are the objects that a state puts back. Raises ``Kept`` where there is no such place.
    """
    first = resume.loads[0]
    assert isinstance(first.value, ast.Call)
    if all(plan.is_prepared_at(site, first.value.args[0]) for site in plan.prepared):
        return
    scope = plan.module.function(first)
    if any(group.scope is not scope or group.made is not None for group in plan.groups):
        raise Kept("it is read before the objects are prepared, in another function", first)
    group = max(plan.groups, key=lambda one: one.end)
    around = [a for a in plan.module.ancestors(group.anchor) if isinstance(a, ast.stmt)]
    inside: ast.AST = first
    for outer in plan.module.ancestors(first):
        if outer is scope or outer in around:
            break
        if not isinstance(outer, ast.If) or inside not in outer.body:
            if isinstance(outer, ast.stmt):
                raise Kept("it is read under conditions that cannot be repeated behind `prepare`", outer)
        else:
            resume.tests.insert(0, outer.test)
        inside = outer
    assert isinstance(inside, ast.stmt)
    block = plan.module.block(inside)
    followed = [s for s in block[block.index(inside) + 1 :] if group.anchor in plan.module.walk(s)]
    if not followed and group.anchor is not inside:
        raise Kept("it is read where not everything is prepared", first)
    _check_repeatable(plan, resume, group, inside)
    _check_unused(plan, wanted, resume, group)
    resume.group = group


def _check_repeatable(plan: Plan, resume: ResumedState, group: Group, outermost: ast.stmt) -> None:
    """Raise ``Kept`` unless tests and path say the same behind the ``prepare``."""
    for test in resume.tests:
        for node in ast.walk(test):
            called = isinstance(node, ast.Call) and not plan.training.library_names(node.func) <= _ASKING
            if called or isinstance(node, (ast.NamedExpr, ast.Await)):
                raise Kept("it is read under conditions that cannot be repeated behind `prepare`", test)
    if any(isinstance(node, (ast.Call, ast.NamedExpr)) and not _joins(plan, node) for node in ast.walk(resume.path)):
        raise Kept("its path cannot be repeated behind `prepare`", resume.path)
    for read, line in [*((test, test.lineno) for test in resume.tests), (resume.path, resume.path.lineno)]:
        names = {ast.unparse(n) for n in ast.walk(read) if isinstance(n, (ast.Name, ast.Attribute))}
        for node in plan.module.walk(plan.module.function(outermost)):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
                if line < node.lineno <= group.end and ast.unparse(node) in names:
                    raise Kept(f"`{ast.unparse(node)}` changes before everything is prepared", node)


def _joins(plan: Plan, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and (
        plan.training.library_names(node.func) <= {"os.path.join"}
        or (isinstance(node.func, ast.Attribute) and node.func.attr == "format")
    )


def _check_unused(plan: Plan, wanted: frozenset[Site], resume: ResumedState, group: Group) -> None:
    """Raise ``Kept`` where something between the load and the ``prepare`` depends on what was loaded."""
    gone = {node for load in resume.loads for node in ast.walk(load)}
    start = resume.loads[0].lineno
    for node in plan.module.walk(group.scope):
        line = getattr(node, "lineno", 0)
        if not start < line <= group.end or node in gone:
            continue
        if isinstance(node, ast.Call) and plan.value(node).sites(Role.SCHEDULER):
            raise Kept("a scheduler is made from the optimizer that was loaded", node)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            value = plan.value(node)
            if value.only(Object) and value.sites() & wanted and not _is_harmless(plan, node):
                raise Kept("what was loaded is used before everything is prepared", node)


def _is_harmless(plan: Plan, node: ast.Name | ast.Attribute) -> bool:
    """Whether a model or optimizer is only wrapped, printed, moved or asked for its parameters."""
    parent = plan.module.parents[node]
    if isinstance(parent, ast.Attribute):
        return parent.attr in _HARMLESS
    if isinstance(parent, ast.Assign):
        return any(isinstance(target, (ast.Name, ast.Attribute)) for target in assigned_targets(parent))
    names = plan.training.library_names(parent.func) if isinstance(parent, ast.Call) else frozenset[str]()
    return bool(names) and all(n == "builtins.print" or n.startswith(("torch.nn.", "torch.optim.")) for n in names)

"""AM440: ranks and numbers of processes are asked of the accelerator."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis import processes
from accelerate_migrate.analysis.atoms import Share
from accelerate_migrate.analysis.scopes import parameters
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.edits import RemoveParameter, Replace
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import only_says
from accelerate_migrate.rules.parallel_edits import asked


def apply(context: Context) -> None:
    """Replace what is left of ranks, world sizes and flags, outermost expressions first."""
    parallel = context.plan.parallel
    if not parallel.active:
        return
    for node in context.plan.module.walk():
        if isinstance(node, ast.expr) and not context.is_gone(node):
            _ask(context, node)
    replaced = {edit.node for edit in context.edits if isinstance(edit, Replace)}
    for edit in context.edits:
        if isinstance(edit, RemoveParameter):
            _check_unread(context, edit, replaced)


def _check_unread(context: Context, edit: RemoveParameter, replaced: set[ast.expr]) -> None:
    """Raise ``Unclear`` where something still reads a parameter that goes."""
    for node in context.plan.module.walk(edit.function):
        if not isinstance(node, ast.Name) or node.id != edit.name or node in replaced:
            continue
        if not context.is_gone(node):
            raise Unclear(f"`{edit.name}` stands for the processes, but not in all that is done with it", node)


def _ask(context: Context, node: ast.expr) -> None:
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or isinstance(node, (ast.Constant, ast.IfExp)):
        return
    parallel = context.plan.parallel
    if isinstance(node, ast.BinOp) and parallel.share(node.right) is Share.NEVER and isinstance(node.op, ast.Add):
        context.replace(node, "{0}", node.left)
        context.migrated(node, f"{short(node.right)}: no sample is left over")
        return
    share = parallel.share(node)
    if share is None or share is Share.NEVER or (share is Share.DEVICES and not _divides(context, node)):
        return
    if _is_passed(context, node) or not context.may_change(node):
        return
    if not context.has_accelerator(node):
        if ast.unparse(node) in parallel.flags and _is_printed(context, node):
            context.note(node, f"{short(node)} is what the script was told, not how many processes there are")
            return
        raise Unclear(f"`{short(node)}` asks for the processes where the accelerator cannot be passed", node)
    text = asked(context.accelerator(node), share)
    context.replace(node, text)
    context.migrated(node, f"{short(node)} -> {text}")


def _is_printed(context: Context, node: ast.expr) -> bool:
    """Whether an expression is only shown to people."""
    statement = context.plan.module.statement(node)
    return isinstance(statement, ast.Expr) and only_says(statement.value)


def _is_passed(context: Context, node: ast.expr) -> bool:
    """Whether this reads a parameter or attribute that stays: what is stored there is asked of the accelerator."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return True
    if not isinstance(node, ast.Name):
        return False
    for function in context.plan.module.ancestors(node):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            if node.id in {a.arg for a in parameters(function)}:
                return not any(
                    isinstance(e, RemoveParameter) and e.function is function and e.name == node.id
                    for e in context.edits
                )
    return False


def _divides(context: Context, node: ast.expr) -> bool:
    """Whether a number of devices divides or multiplies something, as the number of processes does now."""
    around = context.parent(node)
    return (
        isinstance(around, ast.BinOp)
        and isinstance(around.op, (ast.Div, ast.FloorDiv, ast.Mult))
        and (processes.share(context.plan.value(around)) is None)
    )


RULE = Rule(
    code="AM440",
    name="world",
    summary="Ranks, world sizes and tests for them are asked of the accelerator.",
    why="It knows the number of this process, how many there are and whether this is the main one, with and without "
    "a launcher. Variables that only held these go.",
    before="rank = dist.get_rank()\n...\nlog.append((rank, loss.item()))",
    after="...\nlog.append((accelerator.process_index, loss.item()))",
    safety="Exact: process 0 of 1, without a process group.",
    apply=apply,
    order=66,
    essential=True,
)

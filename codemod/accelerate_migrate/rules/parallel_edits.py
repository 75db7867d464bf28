"""What the rules about parallel code share: statements that go or leave one branch, and what takes their place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelerate_migrate.analysis.atoms import Share
from accelerate_migrate.analysis.parallel_library import ENDING
from accelerate_migrate.edits import Insert, ReplaceStatement, Unwrap
from accelerate_migrate.rules.base import Context

ASKED = {
    Share.RANK: "process_index",
    Share.LOCAL_RANK: "local_process_index",
    Share.WORLD: "num_processes",
    Share.DEVICES: "num_processes",
    Share.MAIN: "is_main_process",
    Share.SPREAD: "num_processes > 1",
    Share.ALONE: "num_processes == 1",
}


def asked(accelerator: str, share: Share) -> str:
    """The source that asks the accelerator for something about the processes."""
    if share is Share.OTHERS:
        return f"not {accelerator}.is_main_process"
    return f"{accelerator}.{ASKED[share]}"


def outermost_gone(context: Context) -> Iterator[ast.stmt]:
    """The statements that go, without those inside others."""
    gone, module = context.plan.parallel.gone, context.plan.module
    for statement in sorted(gone, key=lambda s: s.lineno):
        if not any(around in gone for around in module.ancestors(statement)):
            yield statement


def take_out(context: Context) -> None:
    """Delete the statements that go, leave the branches that stay, and put what is lifted in front."""
    plan = context.plan
    replaced = {definition.statement for definition in plan.definitions}
    for statement in outermost_gone(context):
        if not replaced.isdisjoint(plan.module.ancestors(statement)):
            context.gone.add(statement)
            continue
        for lifted in plan.parallel.lifted.get(statement, ()):
            _lift(context, statement, lifted)
        if _ends(context, statement) and context.has_accelerator(statement):
            context.edit(ReplaceStatement(statement, f"{context.accelerator(statement)}.end_training()"))
            context.gone.add(statement)
        else:
            context.delete(statement)
    for node, branch in plan.parallel.kept.items():
        if not context.is_gone(node):
            context.edit(Unwrap(node, branch))
            context.gone.add(node.test)
            context.gone.update(node.orelse if branch == "body" else node.body)


def _ends(context: Context, statement: ast.stmt) -> bool:
    """Whether a statement ends the process group, itself or by a function of the script."""
    calls = context.plan.parallel.calls
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    reached = context.plan.training.reached([statement])
    return any(calls.get(node) in ENDING for node in reached if isinstance(node, ast.Call))


def _lift(context: Context, statement: ast.stmt, lifted: ast.Assign) -> None:
    """Put an assignment that holds on every process beside the statement that goes, behind a whole ``elif`` chain."""
    module = context.plan.module
    place = statement
    while isinstance(around := module.parents[place], ast.If) and around.orelse == [place]:
        place = around
    text = f"{ast.unparse(lifted.targets[0])} = {counted(context, lifted.value, place)}"
    context.edit(Insert(place, text.replace("{", "{{").replace("}", "}}"), after=True))
    context.migrated(lifted, f"`{text}`: divided over the processes of the launcher")


def counted(context: Context, node: ast.expr, place: ast.stmt) -> str:
    """The source of an expression in which the number of processes is asked of the accelerator."""
    number = f"{context.accelerator(place)}.num_processes"
    parallel = context.plan.parallel
    texts = {ast.unparse(n) for n in ast.walk(node) if isinstance(n, ast.expr) and parallel.counts_processes(n)}

    class Asking(ast.NodeTransformer):
        def visit(self, inner: ast.AST) -> ast.AST:
            if isinstance(inner, ast.expr) and ast.unparse(inner) in texts:
                return ast.parse(number, mode="eval").body
            visited: ast.AST = super().visit(inner)
            return visited

    return ast.unparse(Asking().visit(ast.parse(ast.unparse(node), mode="eval").body))

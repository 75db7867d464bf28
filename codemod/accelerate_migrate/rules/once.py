"""What one process does for all: how rules let the main process alone run a statement."""

from __future__ import annotations

import ast

from accelerate_migrate.edits import AddImport, Wrap
from accelerate_migrate.rules.base import Context, short
from accelerate_migrate.rules.calls import library_names, own_statement

_BUFFERS = frozenset({"io.BytesIO", "io.StringIO"})


def write_once(context: Context, call: ast.Call) -> bool:
    """Let the main process alone run a call that is a statement of its own; say so, or why that is not possible."""
    statement = own_statement(context.plan, call)
    if statement is not None and (is_guarded(context, statement) or writes_to_memory(context, call)):
        return True
    if statement is None or not context.has_accelerator(call):
        context.review(call, f"{short(call)} runs on every process")
        return False
    if needs_everyone(context, statement):
        context.manual(
            call, f"{short(call)} calls the model: guarding it would leave the other processes behind; split it by hand"
        )
        return False
    context.guard(statement)
    context.migrated(call, f"{short(call.func)}: the main process writes")
    return True


def writes_to_memory(context: Context, call: ast.Call) -> bool:
    """Whether a call is given a buffer in memory, ``io.BytesIO()``, which every process has for itself."""
    module = context.plan.module

    def is_buffer(node: ast.expr | None) -> bool:
        return isinstance(node, ast.Call) and not library_names(context.plan, node.func).isdisjoint(_BUFFERS)

    for given in (*call.args, *(k.value for k in call.keywords)):
        if is_buffer(given):
            return True
        if isinstance(given, ast.Name):
            named = (n for n in module.walk(module.function(call)) if isinstance(n, ast.Name) and n.id == given.id)
            stored = [module.parents[n] for n in named if isinstance(n.ctx, ast.Store)]
            if stored and all(is_buffer(a.value if isinstance(a, ast.Assign) else None) for a in stored):
                return True
    return False


def to_null_device(context: Context, path: ast.expr) -> bool:
    """Let every process but the main one open the null device in place of this path; whether that can be said here."""
    module = context.plan.module
    walked = module.walk(module.root(path))
    taken = any(
        (isinstance(n, ast.Name) and n.id == "os" and isinstance(n.ctx, ast.Store))
        or (isinstance(n, ast.arg) and n.arg == "os")
        for n in walked
    )
    if taken or not context.has_accelerator(path):
        return False
    context.replace(path, f"{{0}} if {context.accelerator(path)}.is_main_process else os.devnull", path)
    context.edit(AddImport("os", "", module.root(path)))
    return True


def is_guarded(context: Context, node: ast.AST) -> bool:
    """Whether a rule puts a guard around this node already, or the script had one."""
    if context.in_own_guard(node):
        return True
    around = {node, *context.plan.module.ancestors(node)}
    guards = (e for e in context.edits if isinstance(e, Wrap) and "is_main_process" in e.header)
    return any(not around.isdisjoint(guard.statements) for guard in guards)


def needs_everyone(context: Context, statement: ast.stmt) -> bool:
    """Whether every process must take part in a statement: it calls the model, goes through a loader, or saves."""
    plan = context.plan
    loops = {loop.node for loop in plan.training.loops}
    for node in plan.training.reached([statement]):
        if node in loops or plan.training.forwards(node):
            return True
        if isinstance(node, ast.Call) and "torch.save" in library_names(plan, node.func):
            return True
    return False

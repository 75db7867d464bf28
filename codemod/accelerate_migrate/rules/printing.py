"""AM230: lines appear once, not once a process."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import FunctionRef
from accelerate_migrate.analysis.library import PROGRESS_BARS
from accelerate_migrate.edits import AddArgument
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import keyword, library_calls, library_names, own_statement
from accelerate_migrate.rules.once import is_guarded

_LINE_WRITERS = frozenset({"sys.stdout.write", "tqdm.tqdm.write", "click.echo", "pprint.pprint"})


def apply(context: Context) -> None:
    """Rewrite ``print``, progress bars, and calls of functions elsewhere that only print."""
    guarded = _guard_printers(context)
    for call, names in library_calls(context.plan):
        if not context.may_change(call):
            continue
        if names == {"builtins.print"} and not context.in_own_guard(call):
            _print(context, call, guarded)
        elif names <= _LINE_WRITERS and context.has_accelerator(call):
            _write_once(context, call)
        elif names <= PROGRESS_BARS and keyword(call, "disable") is None and context.has_accelerator(call):
            accelerator = context.accelerator(call)
            context.edit(AddArgument(call, f"not {accelerator}.is_local_main_process", name="disable"))
            context.migrated(call, "the progress bar is shown by the main process of each machine")


def _guard_printers(context: Context) -> set[ast.AST]:
    """Let the main process alone call what only prints; the functions that are only called so."""
    left: set[ast.AST] = set()
    found: set[ast.AST] = set()
    for node in context.plan.module.walk():
        if not isinstance(node, ast.Call):
            continue
        callees = {c.node for c in context.plan.value(node.func).of(FunctionRef)}
        statement = own_statement(context.plan, node) if _only_prints(context, node) else None
        if statement is not None and context.may_change(node) and context.has_accelerator(node):
            context.guard(statement)
            context.migrated(node, f"{short(node.func)} prints: called by the main process only")
            found |= callees
        elif not context.is_gone(node):
            left |= callees
    return found - left


def _print(context: Context, call: ast.Call, guarded: set[ast.AST]) -> None:
    if not context.has_accelerator(call):
        if context.plan.module.function(call) not in guarded and _runs_in_every_process(context, call):
            context.note(
                call, "printed by every process: the accelerator does not exist here yet, or cannot be passed here"
            )
        return
    if is_guarded(context, call):
        return
    destination = keyword(call, "file")
    if destination is not None and "stderr" not in ast.unparse(destination.value):
        _write_once(context, call)
        return
    accelerator = context.accelerator(call)
    context.replace(call.func, f"{accelerator}.print")
    context.migrated(call, f"print -> {accelerator}.print")


def _write_once(context: Context, call: ast.Call) -> None:
    statement = own_statement(context.plan, call)
    if statement is not None and not is_guarded(context, statement):
        context.guard(statement)
        context.migrated(call, "written by the main process only")


def _runs_in_every_process(context: Context, call: ast.Call) -> bool:
    """Whether this print runs when the script runs (not in a function that nothing here calls)."""
    function = context.plan.module.function(call)
    return isinstance(function, ast.Module) or bool(context.plan.store.callers.get(function))


def _only_prints(context: Context, call: ast.Call) -> bool:
    """A function of another file that prints and calls nothing of this one, or a method that does nothing else."""
    callees = context.plan.value(call.func).of(FunctionRef)
    own = context.plan.module.root(call)
    if not callees or not all(_prints(context, c.node) for c in callees):
        return False
    for callee in callees:
        first = callee.node.body if isinstance(callee.node, ast.Lambda) else callee.node.body[0]
        if context.has_accelerator(first):
            return False
        if context.plan.module.root(callee.node) is own:
            if callee.owner is None or _changes_something(context, callee.node):
                return False
        elif callee.owner is not None:
            return False
    return True


def _changes_something(context: Context, function: ast.AST) -> bool:
    """Whether a method does more than print: it writes to an attribute or an item."""
    inside = context.plan.module.walk(function)
    return any(isinstance(n, (ast.Attribute, ast.Subscript)) and isinstance(n.ctx, ast.Store) for n in inside)


def _prints(context: Context, function: ast.AST) -> bool:
    returns = any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(function))
    if returns:
        return False
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            if ast.unparse(node.func) in ("print", "sys.stdout.write"):
                return True
            if "builtins.print" in library_names(context.plan, node.func):
                return True
    return False


RULE = Rule(
    code="AM230",
    name="printing",
    summary="`print` becomes `accelerator.print`; progress bars show once.",
    why="Every process runs the script: without this each line appears once a process. A training loop's line shows "
    "the main process's own numbers.",
    before='print(f"epoch {epoch}: {loss.item():.4f}")',
    after='accelerator.print(f"epoch {epoch}: {loss.item():.4f}")',
    safety="Exact on one process. A print before the accelerator can exist is left and named.",
    apply=apply,
    order=60,
)

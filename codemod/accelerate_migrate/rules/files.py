"""AM240: files and folders are made once, and data is downloaded once."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import FunctionRef
from accelerate_migrate.analysis.library import FILE_WRITERS, FILE_WRITING_METHODS
from accelerate_migrate.edits import AddArgument, Wrap
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import keyword, library_calls, library_names, method_calls
from accelerate_migrate.rules.once import write_once


def apply(context: Context) -> None:
    """Guard writers, make folder creation safe for several processes, let the main process download first."""
    for call, names in library_calls(context.plan):
        if not context.may_change(call):
            continue
        if names <= FILE_WRITERS:
            write_once(context, call)
        elif names == {"os.makedirs"} and keyword(call, "exist_ok") is None and len(call.args) == 1:
            context.edit(AddArgument(call, "True", name="exist_ok"))
            context.migrated(call, "several processes may make this folder at once")
        elif names == {"os.mkdir"} and len(call.args) == 1 and not call.keywords:
            _mkdir(context, call)
    for call, _ in method_calls(context.plan, *FILE_WRITING_METHODS):
        if context.may_change(call) and not context.plan.store.calls.get(call) and call.args:
            if not library_names(context.plan, call.func) & FILE_WRITERS:
                write_once(context, call)
    for call, func in method_calls(context.plan, "mkdir"):
        named = {k.arg for k in call.keywords}
        if context.may_change(call) and not call.args and named <= {"parents", "mode"} and _is_plain(context, func):
            context.edit(AddArgument(call, "True", name="exist_ok"))
            context.migrated(call, "several processes may make this folder at once")
        elif context.may_change(call) and _is_plain(context, func):
            _mkdir_anew(context, call)
    _downloads(context)


def _mkdir(context: Context, call: ast.Call) -> None:
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        context.replace(call, f"{call.func.value.id}.makedirs({{0}}, exist_ok=True)", call.args[0])
        context.migrated(call, "several processes may make this folder at once")
    else:
        context.review(call, f"{short(call)}: every process makes this folder; the second one fails")


def _mkdir_anew(context: Context, call: ast.Call) -> None:
    """``mkdir(exist_ok=…)`` of a folder that must not be there yet: every process makes it, and all but one would fail.

    What nothing in the program calls is left alone.
    """
    named = keyword(call, "exist_ok")
    if named is None or (isinstance(named.value, ast.Constant) and named.value.value):
        return
    function = context.plan.module.function(call)
    if not isinstance(function, ast.Module) and not context.plan.store.callers.get(function):
        return
    context.replace(named.value, "True")
    context.gone.add(named.value)
    context.review(
        call,
        "several processes make this folder at once, so that one that is there already is no error any more; a name "
        "made of the time may differ between processes",
    )


def _is_plain(context: Context, func: ast.Attribute) -> bool:
    """Whether a method is none of the program's own."""
    return not context.plan.value(func).of(FunctionRef) and not library_names(context.plan, func)


def _downloads(context: Context) -> None:
    """``Dataset(..., download=True)``: the main process downloads, then the others find the files."""
    seen: set[ast.stmt] = set()
    for node in context.plan.module.walk():
        if not isinstance(node, ast.Call):
            continue
        named = keyword(node, "download")
        if named is None or not (isinstance(named.value, ast.Constant) and named.value.value is True):
            continue
        statement = context.plan.module.statement(node)
        if statement in seen or not context.may_change(node) or _is_locked(context, statement):
            continue
        seen.add(statement)
        if isinstance(statement, (ast.Assign, ast.Expr, ast.Return)) and context.has_accelerator(node):
            context.edit(Wrap((statement,), f"with {context.accelerator(node)}.main_process_first():"))
            context.migrated(statement, "the main process downloads first")
        else:
            context.review(node, f"{short(node.func)}: every process downloads at once; fetch the data beforehand")


def _is_locked(context: Context, statement: ast.stmt) -> bool:
    """Whether a lock lets one process at a time run a statement: waiting for the main one inside it would hang."""
    return any(
        isinstance(around, ast.With) and any("lock" in ast.unparse(item.context_expr).lower() for item in around.items)
        for around in context.plan.module.ancestors(statement)
    )


RULE = Rule(
    code="AM240",
    name="files",
    summary="Images, logs and folders are written once; data is downloaded once.",
    why="Every process runs the script: files would be written over each other, folders made twice, archives "
    "unpacked while another process reads them.",
    before="if not os.path.exists(out):\n    os.makedirs(out)\nsave_image(grid, path)",
    after="if not os.path.exists(out):\n    os.makedirs(out, exist_ok=True)\n"
    "if accelerator.is_main_process:\n    save_image(grid, path)",
    safety="Exact on one process.",
    apply=apply,
    order=61,
)

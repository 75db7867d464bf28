"""AM240: files and folders are made once, and data is downloaded once."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.library import FILE_WRITERS, FILE_WRITING_METHODS
from accelerate_migrate.analysis.values import Role
from accelerate_migrate.edits import AddArgument, Wrap
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import keyword, library_calls, library_names, method_calls, own_statement


def apply(context: Context) -> None:
    """Guard writers, make folder creation safe for several processes, let the main process download first."""
    for call, names in library_calls(context.plan):
        if not context.may_change(call):
            continue
        if names <= FILE_WRITERS:
            _write_once(context, call)
        elif names == {"os.makedirs"} and keyword(call, "exist_ok") is None and len(call.args) == 1:
            context.edit(AddArgument(call, "True", name="exist_ok"))
            context.migrated(call, "several processes may make this folder at once")
        elif names == {"os.mkdir"} and len(call.args) == 1 and not call.keywords:
            _mkdir(context, call)
        elif names == {"builtins.open"} and _opens_for_writing(call) and not _is_guarded(context, call):
            context.review(call, f"{short(call)}: every process writes this file")
    for call, _ in method_calls(context.plan, *FILE_WRITING_METHODS):
        if context.may_change(call) and not context.plan.store.calls.get(call) and call.args:
            if not library_names(context.plan, call.func) & FILE_WRITERS:
                _write_once(context, call)
    _downloads(context)
    _writers(context)


def _mkdir(context: Context, call: ast.Call) -> None:
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        context.replace(call, f"{call.func.value.id}.makedirs({{0}}, exist_ok=True)", call.args[0])
        context.migrated(call, "several processes may make this folder at once")
    else:
        context.review(call, f"{short(call)}: every process makes this folder; the second one fails")


def _write_once(context: Context, call: ast.Call) -> None:
    statement = own_statement(context.plan, call)
    if statement is None or not context.has_accelerator(call):
        context.review(call, f"{short(call)} runs on every process")
        return
    if any(context.plan.training.forwards(node) for node in ast.walk(call)):
        context.manual(
            call, f"{short(call)} calls the model: guarding it would leave the other processes behind; split it by hand"
        )
        return
    context.guard(statement)
    context.migrated(call, f"{short(call.func)}: the main process writes")


def _is_guarded(context: Context, node: ast.AST) -> bool:
    """Whether another rule puts a guard around this node."""
    around = set(context.plan.module.ancestors(node))
    return any(isinstance(edit, Wrap) and not around.isdisjoint(edit.statements) for edit in context.edits)


def _opens_for_writing(call: ast.Call) -> bool:
    mode = call.args[1] if len(call.args) > 1 else None
    named = keyword(call, "mode")
    mode = named.value if named is not None else mode
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and any(c in mode.value for c in "wax+")


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
        if statement in seen or not context.may_change(node):
            continue
        seen.add(statement)
        if (
            isinstance(statement, ast.Assign)
            and context.has_accelerator(node)
            and not _around_accelerator(context, statement)
        ):
            context.edit(Wrap((statement,), f"with {context.accelerator(node)}.main_process_first():"))
            context.migrated(statement, "the main process downloads first")
        else:
            context.review(node, f"{short(node.func)}: every process downloads at once; fetch the data beforehand")


def _around_accelerator(context: Context, statement: ast.stmt) -> bool:
    """Whether this statement also defines what another edit would stand next to."""
    return any(group.anchor is statement for group in context.plan.groups)


def _writers(context: Context) -> None:
    """Calls on TensorBoard writers."""
    for node in context.plan.module.walk():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and context.may_change(node):
            if context.plan.value(node.func.value).sites(Role.WRITER):
                _write_once(context, node)


RULE = Rule(
    code="AM240",
    name="files",
    summary="Images, logs and folders are written once; data is downloaded once.",
    why="Every process runs the script: files would be written over each other, folders made twice, archives "
    "unpacked while another process reads them.",
    before="if not os.path.exists(out):\n    os.makedirs(out)\nsave_image(grid, path)",
    after="if not os.path.exists(out):\n    os.makedirs(out, exist_ok=True)\n"
    "if accelerator.is_main_process:\n    save_image(grid, path)",
    safety="Exact on one process. A file opened for writing is named for review.",
    apply=apply,
    order=61,
)

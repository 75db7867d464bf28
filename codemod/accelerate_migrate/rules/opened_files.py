"""AM242: a file that is opened for writing is written by the main process."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.modules import Tree
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import library_calls, opening_mode
from accelerate_migrate.rules.once import is_guarded, needs_everyone, to_null_device


def apply(context: Context) -> None:
    """Guard what opens, writes and closes a file; where it stays open, the others get the null device."""
    for call, names in library_calls(context.plan):
        if names != {"builtins.open"} or not call.args or not context.may_change(call):
            continue
        mode = opening_mode(call, "mode", 1)
        if not any(letter in mode for letter in "wax+") or is_guarded(context, call):
            continue
        statement = context.plan.module.statement(call)
        if not context.has_accelerator(call):
            context.review(call, f"{short(call)}: every process writes this file")
        elif _is_complete(context, statement, call):
            context.guard(statement)
            context.migrated(call, f"{short(call)}: the main process writes this file")
        elif "x" in mode or "+" in mode or not to_null_device(context, call.args[0]):
            context.review(call, f"{short(call)}: every process writes this file")
        else:
            context.migrated(call, f"{short(call)}: the main process writes this file, the others nowhere")


def _is_complete(context: Context, statement: ast.stmt, call: ast.Call) -> bool:
    """Whether a statement opens a file, writes it and leaves nothing behind, so that one process can run it for all."""
    if needs_everyone(context, statement):
        return False
    if isinstance(statement, ast.Expr):
        return True
    if not isinstance(statement, ast.With) or len(statement.items) != 1 or statement.items[0].context_expr is not call:
        return False
    inside = set(context.plan.module.walk(statement))
    leaving = (ast.Return, ast.Yield, ast.YieldFrom, ast.Break, ast.Continue, ast.Await, ast.Global, ast.Nonlocal)
    if any(isinstance(node, leaving) for node in inside):
        return False
    bound = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del))}
    changed = [n for n in inside if isinstance(n, (ast.Attribute, ast.Subscript)) and isinstance(n.ctx, ast.Store)]
    return not changed and not any(_reads_behind(context.plan.module, statement, name) for name in bound)


def _reads_behind(module: Tree, statement: ast.With, name: str) -> bool:
    """Whether a name that a ``with`` binds is read outside of it, and not where another ``with`` or loop binds it."""
    inside = set(module.walk(statement))
    for node in module.walk(module.function(statement)):
        if not (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)) or node in inside:
            continue
        binding = (ast.With, ast.For, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
        if not any(name in _targets(around) for around in module.ancestors(node) if isinstance(around, binding)):
            return True
    return False


def _targets(node: ast.AST) -> set[str]:
    """The names that a ``with``, a loop or a comprehension itself binds."""
    if isinstance(node, ast.With):
        bound = [item.optional_vars for item in node.items]
    elif isinstance(node, ast.For):
        bound = [node.target]
    else:
        bound = [generator.target for generator in getattr(node, "generators", ())]
    return {n.id for target in bound if target is not None for n in ast.walk(target) if isinstance(n, ast.Name)}


RULE = Rule(
    code="AM242",
    name="opened-files",
    summary="A file opened for writing is written by the main process.",
    why="Every process runs the script: they would write over each other, or each line would appear once a process. "
    "What opens, writes and closes a file runs on the main process only. Where a file stays open, the other processes "
    "get the null device in its place, so that nothing else changes.",
    before='with open("scores.json", "w") as file:\n    json.dump(scores, file)\nlog = open("log.txt", "a")',
    after='if accelerator.is_main_process:\n    with open("scores.json", "w") as file:\n'
    "        json.dump(scores, file)\n"
    'log = open("log.txt" if accelerator.is_main_process else os.devnull, "a")',
    safety="Exact on one process. A file opened for reading as well, or before the accelerator can exist, is named for "
    "review.",
    apply=apply,
    order=58,
)

"""AM262: a script that refuses to run without CUDA runs anywhere."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.guards import is_availability
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import library_names, only_says

_EXITS = frozenset({"sys.exit", "os._exit", "builtins.exit", "builtins.quit"})


def apply(context: Context) -> None:
    """Drop ``assert torch.cuda.is_available()`` and ``if not torch.cuda.is_available(): raise ...``."""
    for node in context.plan.module.walk():
        if isinstance(node, ast.Assert):
            demands = is_availability(context.plan.training, node.test)
        elif isinstance(node, ast.If):
            demands = _refuses(context, node)
        else:
            continue
        if demands and context.may_change(node):
            context.migrated(node, f"{short(node, 40)}: the accelerator takes what is there")
            context.delete_emptying(node)


def _refuses(context: Context, node: ast.If) -> bool:
    """Whether a branch for "no CUDA" says so and leaves, and does nothing else."""
    test = node.test
    if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)) or node.orelse:
        return False
    if not is_availability(context.plan.training, test.operand):
        return False
    *before, last = node.body
    return _leaves(context, last) and all(isinstance(s, ast.Expr) and only_says(s.value) for s in before)


def _leaves(context: Context, statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        return True
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and bool(library_names(context.plan, call.func) & _EXITS)


RULE = Rule(
    code="AM262",
    name="cuda-demands",
    summary="`assert torch.cuda.is_available()` and exits for want of CUDA go.",
    why="The migrated script runs on whatever there is: another kind of accelerator, or the CPU.",
    before='assert torch.cuda.is_available(), "needs a GPU"',
    after="",
    safety="Exact where there is CUDA. A demand under a flag of the command line (`if args.cuda and not ...`) stays.",
    apply=apply,
    order=10,
)

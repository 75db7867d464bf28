"""AM264: which GPUs are used is the launcher's affair, not the script's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelerate_migrate.analysis.training import Training
from accelerate_migrate.rules.base import Context, Rule, short

_NAME = "CUDA_VISIBLE_DEVICES"
_LEFT = "CUDA_VISIBLE_DEVICES is set by the launcher (gpu_ids in the launch config); remove it here"


def apply(context: Context) -> None:
    """Drop the statements that set ``CUDA_VISIBLE_DEVICES``, unless the script also reads it."""
    training = context.plan.training
    writes = list(_writes(training))
    read = any(n not in writes for n in _mentions(training))
    for name in writes:
        statement = training.module.statement(name)
        if not context.may_change(statement):
            continue
        if _hides(statement):
            context.note(name, "no GPU is visible to this script: it stays on the CPU")
        elif read or not _is_all(statement, name):
            context.manual(name, _LEFT)
        else:
            context.migrated(
                statement,
                f"{short(statement)}: every process has a GPU of its own, which the launcher chooses "
                "(gpu_ids in the launch config)",
            )
            context.delete_emptying(statement)


def remaining(training: Training) -> Iterator[tuple[ast.AST, str]]:
    """The statements that still set it."""
    for name in _writes(training):
        if not _hides(training.module.statement(name)):
            yield name, _LEFT


def _mentions(training: Training) -> list[ast.Constant]:
    return [n for n in training.module.walk() if isinstance(n, ast.Constant) and n.value == _NAME]


def _writes(training: Training) -> Iterator[ast.Constant]:
    """The names in ``os.environ["CUDA_VISIBLE_DEVICES"] = ...``, ``setdefault`` and ``putenv``."""
    for name in _mentions(training):
        parent = training.module.parents[name]
        if isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store):
            yield name
        elif isinstance(parent, ast.Call) and parent.args[:1] == [name] and isinstance(parent.func, ast.Attribute):
            if parent.func.attr in ("setdefault", "putenv"):
                yield name


def _hides(statement: ast.stmt) -> bool:
    """Whether no GPU is left visible: an empty list, or -1."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and len(statement.value.args) > 1:
        value = statement.value.args[1]
    return isinstance(value, ast.Constant) and str(value.value).strip() in ("", "-1")


def _is_all(statement: ast.stmt, name: ast.Constant) -> bool:
    """Whether a statement does nothing but set the variable."""
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
        calls = any(
            isinstance(n, (ast.Call, ast.Await, ast.NamedExpr)) and not _is_text(n) for n in ast.walk(statement.value)
        )
        return len(statement.targets) == 1 and isinstance(target, ast.Subscript) and target.slice is name and not calls
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def _is_text(node: ast.AST) -> bool:
    """Whether a call only makes a text: ``str(n)``, ``",".join(ids)``, ``"{}".format(n)``."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in ("str", "map", "range", "join", "format", "strip", "replace")


RULE = Rule(
    code="AM264",
    name="visible-devices",
    summary="Statements that set `CUDA_VISIBLE_DEVICES` go.",
    why="The launcher gives each process its GPU; a script that hides GPUs after that takes them away from all "
    "processes but the first. What a constant or a flag's default says stands as `gpu_ids` in the launch config.",
    before='os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu_id',
    after="",
    safety="The training is the same; the GPU it runs on is the launcher's choice. Where the script also reads the "
    "variable it stays. A script that hides every GPU keeps doing so.",
    apply=apply,
    remaining=remaining,
    order=11,
)

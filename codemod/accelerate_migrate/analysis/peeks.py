"""A first look at a loader: a loop that shows something of its batches, or counts them, as notebooks like to do.

It trains and measures nothing, so it may run before `prepare`, over the loader as it was made: every process sees all
batches, as one did. What it drew must only be shown behind it: that batch never went through a prepared loader.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelerate_migrate.analysis.devices import is_pure_move
from accelerate_migrate.analysis.training import Training

_LOOPS = (ast.For, ast.AsyncFor)
_MOVES = ("to", "cuda", "backward", "append", "extend")  # what is kept would be used on another device


def is_peek(training: Training, statement: ast.AST) -> bool:
    """Whether a statement is a loop over a loader that shows its first batch, or, before `prepare`, looks at all of
    them where they are; behind it they are only printed."""
    if not isinstance(statement, ast.For) or statement.orelse:
        return False
    if not training.loaders_of(training.value(statement.iter)):
        inner = statement.body[0]  # for epoch in range(2): for x, y in loader: …
        return len(statement.body) == 1 and is_peek(training, inner)
    *shown, last = statement.body
    bound = _stored(statement)
    first = isinstance(last, ast.Break) and all(_only_shows(training, part, bound) for part in shown)
    looks = first or (_is_before_prepare(training, statement) and _only_looks(training, statement))
    return looks and not _is_used_behind(training, statement, bound)


def _is_before_prepare(training: Training, loop: ast.For) -> bool:
    """Whether a model or an optimizer to prepare is only made behind a loop, in the same function or file."""
    module = training.module
    scope = module.function(loop)
    made = [training.made_at(site) for site in training.models | training.optimizers]
    behind = [m for m in made if isinstance(m, ast.expr) and module.function(m) is scope and m.lineno > loop.lineno]
    return any(module.loop_around(m, within=scope) is None for m in behind)


def _only_looks(training: Training, loop: ast.For) -> bool:
    """Whether a loop leaves batches where they are, and hands them to no function of the program."""
    return not any(_takes_along(training, part) for part in loop.body) and not any(
        isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom, *_LOOPS, ast.While))
        for part in loop.body
        for node in ast.walk(part)
    )


def _takes_along(training: Training, statement: ast.stmt) -> bool:
    """Whether a statement moves something to a device, or calls a model or a function of the program."""
    return any(
        isinstance(node, ast.Call)
        and (
            training.forwards(node)
            or training.store.calls.get(node)
            or (isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES)
            or any(keyword.arg == "device" for keyword in node.keywords)
        )
        for node in ast.walk(statement)
    )


def _only_shows(training: Training, statement: ast.stmt, bound: set[str]) -> bool:
    """Whether a statement moves what was drawn, prints it, or has nothing to do with it."""
    if is_pure_move(statement):
        return True
    called = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    if any(training.forwards(call) or training.store.calls.get(call) for call in called):
        return False
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        func = statement.value.func
        if isinstance(func, ast.Name) and func.id == "print":
            return True
    read = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return isinstance(statement, (ast.Expr, ast.Pass)) and not read & bound


def _stored(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _is_used_behind(training: Training, loop: ast.For, bound: set[str]) -> bool:
    """Whether code behind the loop, or a function, reads a name that the loop bound, and not one bound anew."""
    module = training.module
    inside = set(module.walk(loop))
    scope = module.function(loop)
    for node in module.walk(scope):
        if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in bound):
            continue
        if node in inside or (module.function(node) is scope and node.lineno < loop.lineno):
            continue
        if not _is_bound_anew(training, node, loop) and not _is_printed(training, node):
            return True
    return False


def _is_printed(training: Training, name: ast.Name) -> bool:
    statement = training.module.statement(name)
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Name)
        and statement.value.func.id == "print"
        and not _takes_along(training, statement)
    )


def _is_bound_anew(training: Training, name: ast.Name, loop: ast.For) -> bool:
    """Whether a statement before it in its block, or a loop or function around it, binds the name itself."""
    module = training.module
    shared = set(module.ancestors(loop))
    inner: ast.AST = name
    for around in module.ancestors(name):
        if around in shared:
            return False
        if isinstance(around, _LOOPS) and inner is not around.iter and name.id in _stored(around.target):
            return True
        block: object = getattr(around, "body", None)
        if isinstance(block, list) and inner in block and _is_assigned(block[: block.index(inner)], name.id):
            return True
        if isinstance(around, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            if any(name.id in _stored(generator.target) for generator in around.generators):
                return True
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            named = [a.arg for a in (*around.args.posonlyargs, *around.args.args, *around.args.kwonlyargs)]
            body = around.body if isinstance(around.body, list) else [around.body]
            if name.id in named or any(name.id in _stored(part) for part in body):
                return True
        inner = around
    return False


def _is_assigned(statements: Sequence[ast.stmt], name: str) -> bool:
    """Whether one of these statements assigns the name."""
    return any(isinstance(s, ast.Assign) and any(name in _stored(target) for target in s.targets) for s in statements)

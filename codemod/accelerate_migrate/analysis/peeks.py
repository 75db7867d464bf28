"""A first look at a loader: a loop that shows something of one batch and stops, as notebooks like to do.

It trains and measures nothing, so it may run before `prepare`, over the loader as it was made. What it drew must not be
used behind it: that batch never went through a prepared loader.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelerate_migrate.analysis.devices import is_pure_move
from accelerate_migrate.analysis.training import Training

_LOOPS = (ast.For, ast.AsyncFor)


def is_peek(training: Training, statement: ast.AST) -> bool:
    """Whether a statement is a loop that takes one batch of a loader, shows it and keeps nothing of it."""
    if not isinstance(statement, ast.For) or statement.orelse:
        return False
    if not training.loaders_of(training.value(statement.iter)):
        inner = statement.body[0]  # for epoch in range(2): for x, y in loader: …
        return len(statement.body) == 1 and is_peek(training, inner)
    *shown, last = statement.body
    bound = _stored(statement)
    return (
        isinstance(last, ast.Break)
        and all(_only_shows(training, part, bound) for part in shown)
        and not _is_used_behind(training, statement, bound)
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
        if not _is_bound_anew(training, node, loop):
            return True
    return False


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

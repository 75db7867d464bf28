"""How another scope spells a value: what the loop calls ``n`` is ``args.accum`` where the accelerator is made."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from accelerate_migrate.analysis.scopes import argument_for, default_for
from accelerate_migrate.analysis.training import Training


@dataclass(frozen=True)
class Spelling:
    """The source of a value in a scope, and the line behind which it can be read there."""

    text: str
    known_from: int = 0


def spelled_in(training: Training, node: ast.expr, near: ast.AST, scope: ast.AST) -> Spelling | None:
    """How ``scope`` spells an expression (a constant, a name, an attribute) of the function around ``near``.

    ``None`` where it cannot, or where the value changes on the way.
    """
    module = training.module
    function = module.function(near)
    if isinstance(node, ast.Constant):
        return Spelling(ast.unparse(node))
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name):
        return None
    home: ast.AST = function if _is_local(training, root.id, function) else module.root(near)
    owner = module.class_of(function)
    if root.id == "self" and node is not root and owner is not None and owner is module.class_of(scope):
        home = scope  # an attribute of a trainer, which the method that makes the accelerator has to bind
    if home is not scope and not isinstance(home, ast.Module):
        return _passed(training, node, root, function, scope)
    if home is not scope and (_is_local(training, root.id, scope) or module.root(scope) is not home):
        return None  # another variable of the same name, or another file's
    lines = _bound_at(training, node, root, home)
    if lines is None:
        return None
    return Spelling(ast.unparse(node), max(lines, default=0) if home is scope else 0)


def _is_local(training: Training, name: str, function: ast.AST) -> bool:
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    return name in training.store.scope_names(function).bound


def _passed(training: Training, node: ast.expr, root: ast.Name, function: ast.AST, scope: ast.AST) -> Spelling | None:
    """The same for a parameter: its one caller's argument, or its constant default."""
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    calls = training.store.callers.get(function, set())
    if len(calls) != 1 or _bound_at(training, node, root, function) != []:
        return None
    (call,) = calls
    given = argument_for(call, function, root.id) or default_for(function, root.id)
    if not isinstance(given, (ast.Name, ast.Attribute, ast.Constant)):
        return None
    found = spelled_in(training, given, call, scope)
    if found is None or (node is not root and isinstance(given, ast.Constant)):
        return None
    return Spelling(found.text + ast.unparse(node)[len(root.id) :], found.known_from)


def _bound_at(training: Training, node: ast.expr, root: ast.Name, home: ast.AST) -> list[int] | None:
    """The lines that bind a variable of ``home`` or the attribute read of it; ``None`` where others may bind it too."""
    module, texts = training.module, {ast.unparse(node), root.id}
    lines: list[int] = []
    for other in module.walk():
        if not (isinstance(other, (ast.Name, ast.Attribute)) and isinstance(other.ctx, (ast.Store, ast.Del))):
            continue
        if ast.unparse(other) not in texts:
            continue
        function = module.function(other)
        if function is home:
            lines.append(module.statement(other).end_lineno or 0)
        elif isinstance(other, ast.Attribute) or _is_global_there(training, root.id, function):
            return None
    return lines


def _is_global_there(training: Training, name: str, function: ast.AST) -> bool:
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    return name in training.store.scope_names(function).global_

"""Settings that code from elsewhere may change: plain constants at the top of a script, and an `exec` below them.

    device = "cuda"
    exec(open("configurator.py").read())  # --device=cpu

The names must survive, since such code looks them up by name; what they hold behind the `exec` is not known.
"""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Role
from accelerate_migrate.analysis.modules import Module
from accelerate_migrate.analysis.store import Store

_TRAINED = frozenset({Role.MODEL, Role.OPTIMIZER, Role.SCHEDULER, Role.LOADER, Role.SCALER})


def is_exec(node: ast.AST) -> bool:
    """Whether a node runs code that can bind any name of the file: ``exec`` without a namespace of its own."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "exec"):
        return False
    return len(node.args) < 2 or ast.unparse(node.args[1]) in ("globals()", "locals()", "vars()")


def last_override(tree: ast.Module) -> ast.stmt | None:
    """The last statement of the file's own level that is such an ``exec``, or ``None``."""
    found = [s for s in tree.body if isinstance(s, ast.Expr) and is_exec(s.value)]
    return found[-1] if found else None


def overridden(tree: ast.AST) -> frozenset[str]:
    """The names of the settings above it: constants of the file's own level."""
    last = last_override(tree) if isinstance(tree, ast.Module) else None
    if last is None or not isinstance(tree, ast.Module):
        return frozenset()
    return frozenset(
        target.id
        for statement in tree.body
        if isinstance(statement, ast.Assign) and statement.lineno < last.lineno
        for target in statement.targets
        if isinstance(target, ast.Name) and isinstance(statement.value, ast.Constant)
    )


def opaque_exec(module: Module, store: Store) -> ast.AST | None:
    """An ``exec`` that may change more than settings: inside a function or block, or behind something that trains."""
    last = last_override(module.tree)
    for node in module.walk():
        if is_exec(node) and module.parents[node] not in module.tree.body:
            return node
    made = [s.line for s in store.details if s.role in _TRAINED and s.path == module.path]
    return last if last is not None and any(line < last.lineno for line in made) else None

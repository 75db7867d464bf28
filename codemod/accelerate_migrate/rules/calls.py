"""Finding calls, and what stands around them, in a module's tree, as rules need it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelerate_migrate.analysis.plan import Plan
from accelerate_migrate.analysis.values import Library


def library_names(plan: Plan, node: ast.expr) -> frozenset[str]:
    """The qualified library names that an expression may be."""
    return frozenset(a.name for a in plan.value(node) if isinstance(a, Library))


def library_calls(plan: Plan) -> Iterator[tuple[ast.Call, frozenset[str]]]:
    """Every call whose callee is a library function, with the names it may have."""
    for node in plan.module.walk():
        if isinstance(node, ast.Call):
            names = library_names(plan, node.func)
            if names:
                yield node, names


def method_calls(plan: Plan, *names: str) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    """Every ``receiver.name(...)`` call with one of these names."""
    for node in plan.module.walk():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            yield node, node.func


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """A call's keyword argument of this name."""
    return next((k for k in call.keywords if k.arg == name), None)


def own_statement(plan: Plan, call: ast.Call) -> ast.Expr | None:
    """The statement that is nothing but this call, or ``None``."""
    parent = plan.module.parents[call]
    return parent if isinstance(parent, ast.Expr) else None


def if_around(plan: Plan, statement: ast.stmt) -> ast.If | None:
    """The ``if`` without ``else`` that holds nothing but this statement, or ``None``."""
    around = plan.module.parents[statement]
    return around if isinstance(around, ast.If) and around.body == [statement] and not around.orelse else None


def without_module(model: ast.expr) -> ast.expr:
    """The model of ``model.module``, which is how a script looks through a wrapper; else the expression itself."""
    return model.value if isinstance(model, ast.Attribute) and model.attr == "module" else model

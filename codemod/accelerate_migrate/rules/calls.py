"""Finding calls, and what stands around them, in a module's tree, as rules need it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from accelerate_migrate.analysis.library import LOGGING_METHODS
from accelerate_migrate.analysis.plan import Plan

_SAYING = LOGGING_METHODS | {"print", "write"}


def library_names(plan: Plan, node: ast.expr) -> frozenset[str]:
    """The qualified library names that an expression may be."""
    return plan.training.library_names(node)


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


def only_says(node: ast.expr) -> bool:
    """Whether an expression prints or logs, and does nothing else."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).rsplit(".", 1)[-1] in _SAYING


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """A call's keyword argument of this name."""
    return next((k for k in call.keywords if k.arg == name), None)


def opening_mode(call: ast.Call, name: str, position: int | None) -> str:
    """The mode in which a call opens a file, where it is written down; else nothing."""
    named = keyword(call, name)
    mode = named.value if named is not None else None
    if mode is None and position is not None and len(call.args) > position:
        mode = call.args[position]
    return mode.value if isinstance(mode, ast.Constant) and isinstance(mode.value, str) else ""


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


def is_map_location(plan: Plan, node: ast.expr) -> bool:
    """Whether an expression tells ``torch.load`` where to put what it reads."""
    parent = plan.module.parents[node]
    named = isinstance(parent, ast.keyword) and parent.arg == "map_location"
    call = plan.module.parents[parent] if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call) or "torch.load" not in library_names(plan, call.func):
        return False
    return named or call.args[1:2] == [node]


def moves_storage(node: ast.Lambda) -> bool:
    """Whether a function moves the storage it is given: ``lambda storage, location: storage.cuda(1)``."""
    body, given = node.body, node.args.args
    return (
        isinstance(body, ast.Call)
        and isinstance(body.func, ast.Attribute)
        and body.func.attr == "cuda"
        and isinstance(body.func.value, ast.Name)
        and bool(given)
        and body.func.value.id == given[0].arg
    )


def says_the_same(one: object, other: object, stand_ins: Mapping[ast.Call, ast.expr]) -> bool:
    """Whether two pieces of code say the same, where calls in the first one are read as their stand-ins."""
    if isinstance(one, ast.Call) and one in stand_ins:
        return says_the_same(stand_ins[one], other, stand_ins)
    if isinstance(one, list):
        return (
            isinstance(other, list)
            and len(one) == len(other)
            and all(says_the_same(a, b, stand_ins) for a, b in zip(one, other, strict=True))
        )
    if isinstance(one, ast.AST):
        return type(one) is type(other) and all(
            says_the_same(getattr(one, name, None), getattr(other, name, None), stand_ins) for name in one._fields
        )
    return type(one) is type(other) and one == other

"""A device that is chosen in a function or constructor, by what its caller hands in: the choice, said at the caller."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Process, Share
from accelerate_migrate.analysis.devices import availability, choice_as_cpu
from accelerate_migrate.analysis.scopes import argument_for, parameters
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.values import is_device


def choice_below(training: Training, scope: ast.AST) -> tuple[str | None, int]:
    """The ``cpu=`` that keeps a choice made in what ``scope`` calls, and the line of that call; ``None`` for none."""
    reached = training.called_from(scope) - {scope}
    for function in sorted(reached, key=lambda f: getattr(f, "lineno", 0)):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or not training.module.is_active(function):
            continue
        for node in training.module.walk(function):
            if isinstance(node, ast.IfExp) and is_device(training.value(node)):
                cpu = choice_as_cpu(training, node)
                found = _seen_from(training, cpu, function, scope) if cpu is not None else None
                if found is not None:
                    return found
    return None, 0


def _seen_from(training: Training, text: str, function: ast.AST, scope: ast.AST) -> tuple[str, int] | None:
    """A condition on the parameters of a function in terms of ``scope``, which calls it, once and maybe indirectly."""
    while function is not scope:
        calls = training.store.callers.get(function, set())
        if len(calls) != 1 or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        (call,) = calls
        tree = ast.parse(text, mode="eval").body
        given: dict[str, ast.expr] = {}
        for name in {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}:
            argument = argument_for(call, function, name) if _is_parameter(training, function, name) else None
            if argument is None or not _only_reads(argument):
                return None
            given[name] = argument
        if not given:
            return None
        text = ast.unparse(_Filled(given).visit(tree))
        function, line = training.module.function(call), training.module.statement(call).lineno
    return text, line


class _Filled(ast.NodeTransformer):
    """Puts arguments in the place of parameters."""

    def __init__(self, given: dict[str, ast.expr]) -> None:
        self._given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The argument for a parameter."""
        return self._given[node.id]


def _is_parameter(training: Training, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    """Whether a name means what the caller handed in, less what the machine does not have."""
    if name not in {parameter.arg for parameter in parameters(function)}:
        return False
    return all(
        any(
            isinstance(around, ast.If) and _asks_machine(training, around.test)
            for around in training.module.ancestors(node)
        )
        for node in training.module.walk(function)
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
    )


def _asks_machine(training: Training, test: ast.expr) -> bool:
    """Whether a test is about the devices of the machine."""
    return any(
        availability(training.value(node)) is not None
        or any(atom.share is Share.DEVICES for atom in training.value(node).of(Process))
        for node in ast.walk(test)
        if isinstance(node, ast.expr)
    )


def _only_reads(node: ast.expr) -> bool:
    """Whether an argument is a name, attribute or item, which reads the same at the call as a little before it."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            return False
        node = node.value
    return isinstance(node, ast.Name)

"""What a schedule that steps once a batch is counted in: batches of the whole loader, or steps of one process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from accelerate_migrate.analysis.atoms import FunctionRef, Role, Site
from accelerate_migrate.analysis.modules import LOOPS

if TYPE_CHECKING:
    from accelerate_migrate.analysis.training import Training

_MAX_DEPTH = 6


def follows_a_metric(site: Site) -> bool:
    """Whether a scheduler is stepped by a metric, not counted."""
    return site.made_by.endswith(".ReduceLROnPlateau")


def counts_the_loader(training: Training, site: Site) -> bool:
    """Whether the length of a schedule is made from the length of a loader that is whole still."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "len"
        and any(training.value(argument).sites(Role.LOADER) for argument in node.args)
        for node in _made_from(training, site)
    )


def counts_steps(training: Training, site: Site) -> bool:
    """Whether training ends at the very number of steps that a schedule is made from: steps of one process."""
    if counts_the_loader(training, site):
        return False
    made_from = {ast.unparse(n) for n in _made_from(training, site) if isinstance(n, (ast.Name, ast.Attribute))}
    return bool(made_from & set(_ends(training)))


def _made_from(training: Training, site: Site) -> Iterator[ast.AST]:
    """Every node of a scheduler's arguments, of what their names were bound to, and of the functions among them."""
    seen: set[ast.AST] = set()
    queue: list[tuple[ast.AST, int]] = [
        (argument, 0)
        for call in training.store.details[site].nodes
        for argument in (*call.args, *(k.value for k in call.keywords))
        if not training.value(argument).sites(Role.OPTIMIZER)
    ]
    while queue:
        expression, depth = queue.pop()
        for node in ast.walk(expression):
            yield node
            if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)) or depth >= _MAX_DEPTH:
                continue
            for function in training.value(node).of(FunctionRef):
                if function.node not in seen:
                    seen.add(function.node)
                    queue.append((function.node, depth + 1))
            for statement in training.module.assignments.get(node.id, ()):
                if statement not in seen:
                    seen.add(statement)
                    queue.append((statement.value, depth + 1))


def _ends(training: Training) -> Iterator[str]:
    """What the tests compare with that end a loop which trains before its loader does."""
    training_loops = [loop.node for loop in training.loops if loop.trains]
    around = {a for node in training_loops for a in training.module.ancestors(node) if isinstance(a, LOOPS)}
    tests = [loop.test for loop in around if isinstance(loop, ast.While)]
    for loop in training_loops:
        tests += [
            branch.test
            for branch in training.module.walk(loop)
            if isinstance(branch, ast.If) and any(isinstance(s, (ast.Break, ast.Return)) for s in branch.body)
        ]
    for test in tests:
        for node in ast.walk(test):
            if isinstance(node, ast.Compare):
                compared = [node.left, *node.comparators]
                yield from (ast.unparse(n) for n in compared if isinstance(n, (ast.Name, ast.Attribute)))

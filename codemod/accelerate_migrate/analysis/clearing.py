"""Gradients that nothing steps on: cleared in each round of a loop before the optimizer that would use them steps."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Site
from accelerate_migrate.analysis.methods import root_sites
from accelerate_migrate.analysis.training import Training


def are_cleared(training: Training, backward: ast.Call, model: Site) -> bool:
    """Whether what a backward adds to a model's gradients is surely cleared before an optimizer of the model steps.

    So it is where the loop around it clears them at its own level, steps behind that and does not step again behind
    the backward.
    """
    module = training.module
    loop = module.loop_around(backward)
    if not isinstance(loop, (ast.For, ast.While)):
        return False
    owners = {
        site
        for site in training.optimizers
        if (held := training.store.details[site].owners) is not None and model in root_sites(held)
    }
    steps = [call for call in training.steps if training.receiver(call).sites() & owners]
    inside = set(module.walk(loop))
    if not steps or not all(step in inside and module.loop_around(step) is loop for step in steps):
        return False
    if any(_comes_behind(step, backward) for step in steps):
        return False
    first = min(steps, key=lambda call: (call.lineno, call.col_offset))
    return any(
        _clears(training, statement, model, owners) and _comes_behind(first, statement.value)
        for statement in loop.body
        if isinstance(statement, ast.Expr)
    )


def _clears(training: Training, statement: ast.Expr, model: Site, owners: set[Site]) -> bool:
    call = statement.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "zero_grad":
        return False
    sites = training.value(call.func.value).sites()
    return sites == {model} or (bool(sites) and sites == owners)


def _comes_behind(one: ast.expr, other: ast.expr) -> bool:
    return (one.lineno, one.col_offset) > (other.lineno, other.col_offset)

"""Trainings one after the other, as in a notebook: a name that is bound anew after a training starts another one.

Each training gets a `prepare` of its own, for what was made since the one before.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from accelerate_migrate.analysis.homes import Home
from accelerate_migrate.analysis.modules import DEFINITIONS
from accelerate_migrate.analysis.scopes import assigned_targets
from accelerate_migrate.analysis.training import Training


def split_by_phase(training: Training, homes: Sequence[Home]) -> list[Home]:
    """The homes, with one that is bound in several phases of its scope as several."""
    result: list[Home] = []
    for home in homes:
        by_phase: dict[int, list[ast.stmt]] = defaultdict(list)
        for statement in home.bindings:
            by_phase[_phase_of(training, home.scope, statement)].append(statement)
        if len(by_phase) == 1:
            result.append(replace(home, phase=next(iter(by_phase))))
            continue
        parts = [_part(training, home, phase, bindings) for phase, bindings in sorted(by_phase.items())]
        disjoint = sum(len(part.sites) for part in parts) == len(home.sites)
        result += parts if disjoint and all(part.sites for part in parts) else [home]
    return result


def _phase_of(training: Training, scope: ast.AST, statement: ast.stmt) -> int:
    """How many statements of a scope's own block train before this one."""
    lines = training.phases.get(scope)
    if lines is None:
        block = [s for s in getattr(scope, "body", []) if not isinstance(s, DEFINITIONS)]
        lines = training.phases[scope] = [
            s.end_lineno or s.lineno for s in block if training.reaches([s], set(training.backwards))
        ]
    return sum(line < statement.lineno for line in lines)


def _part(training: Training, home: Home, phase: int, bindings: Sequence[ast.stmt]) -> Home:
    held = {
        site
        for statement in bindings
        if isinstance(statement, (ast.Assign, ast.AnnAssign))
        for target in assigned_targets(statement)
        for node in ast.walk(target)
        if isinstance(node, ast.expr)
        for site in training.value(node).sites()
    }
    return replace(home, sites=home.sites & held, bindings=tuple(bindings), phase=phase)

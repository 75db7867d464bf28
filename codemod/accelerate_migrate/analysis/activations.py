"""Runs of bodies that are kept from one round of the interpretation to the next.

In a later round most functions meet the same arguments and read the same names and fields as before. Such a run is not
repeated: what it noted is noted again, and so is what the runs inside it noted.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable
from dataclasses import dataclass, field

from accelerate_migrate.analysis.modules import Module
from accelerate_migrate.analysis.values import BOTTOM, Value


@dataclass(eq=False, slots=True)
class Activation:
    """One run of the body of a function (with certain arguments) or of a module."""

    key: Hashable
    depth: int  # how many functions were running around it
    result: Value = BOTTOM
    reads: dict[Hashable, int] = field(default_factory=dict)  # what it read, and when first
    notes: dict[ast.AST, Value] = field(default_factory=dict)  # what it found its expressions to be
    inside: dict[Activation, None] = field(default_factory=dict)  # what it entered
    modules: dict[Module, None] = field(default_factory=dict)  # what it imported
    repeatable: bool = True  # not so where what was running around it had a say
    held_at: int = -1


@dataclass(eq=False, slots=True)
class Clock:
    """When each thing that bodies read last changed, counted in changes."""

    now: int = 0
    changed: dict[Hashable, int] = field(default_factory=dict)

    def change(self, key: Hashable) -> None:
        """Note that a thing is not any more what it was."""
        self.now += 1
        self.changed[key] = self.now

    def holds(self, run: Activation) -> bool:
        """Whether a body would do now what it did then: nothing changed since that it, or what it entered, read."""
        if run.held_at == self.now:
            return True
        if run.held_at == _NEVER:
            return False
        changed = self.changed
        for key, read in run.reads.items():
            if changed.get(key, 0) > read:
                run.held_at = _NEVER
                return False
        for inner in run.inside:
            if not self.holds(inner):
                run.held_at = _NEVER
                return False
        run.held_at = self.now
        return True


_NEVER = -2

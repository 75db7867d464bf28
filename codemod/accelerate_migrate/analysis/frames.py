"""One activation of a scope, and the arguments of a call."""

from __future__ import annotations

from dataclasses import dataclass, field

from accelerate_migrate.analysis.modules import Module, Scope
from accelerate_migrate.analysis.values import Value


@dataclass(eq=False, slots=True)
class Frame:
    """The names bound so far in one activation, what it returned and yielded, and the open loops' exits."""

    module: Module
    scope: Scope
    env: dict[str, Value]
    returns: list[Value] = field(default_factory=list)
    yields: list[Value] = field(default_factory=list)
    breaks: list[list[dict[str, Value]]] = field(default_factory=list)
    continues: list[list[dict[str, Value]]] = field(default_factory=list)


@dataclass(slots=True)
class Arguments:
    """The arguments of a call; ``unknown`` where there may be more (``*args``, or a call that is not seen)."""

    positional: list[Value] = field(default_factory=list)
    keywords: dict[str, Value] = field(default_factory=dict)
    unknown: bool = False

    def get(self, index: int, name: str) -> Value | None:
        """The argument at this position or of this name, or ``None``."""
        if index < len(self.positional):
            return self.positional[index]
        return self.keywords.get(name)

    def all(self) -> list[Value]:
        """Every argument's value."""
        return [*self.positional, *self.keywords.values()]

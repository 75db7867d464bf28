"""Objects that stand in for another one."""

from __future__ import annotations

from typing import Any, ClassVar


class StandIn:
    """Has the attributes of another object beside its own.

    Attributes:
        stands_for: the name of the attribute that holds the other object.
    """

    stands_for: ClassVar[str]

    def __getattr__(self, name: str) -> Any:
        if name == self.stands_for:  # of a copy that is being made
            raise AttributeError(name)
        return getattr(getattr(self, self.stands_for), name)

"""How training is spread over processes: one file per strategy, found by name.

Packages may bring their own by an entry point of the group `accelerate_runtime.strategies`.
"""

from __future__ import annotations

import importlib
from importlib import metadata

from .base import Strategy

__all__ = ["Strategy", "find"]

_OURS = {"single": ".single:SingleProcess", "ddp": ".ddp:DataParallel"}
_GROUP = "accelerate_runtime.strategies"


def find(name: str) -> type[Strategy]:
    """The strategy registered as `name`.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name in _OURS:
        module, _, attribute = _OURS[name].partition(":")
        found: type[Strategy] = getattr(importlib.import_module(module, __name__), attribute)
        return found
    theirs = {point.name: point for point in metadata.entry_points(group=_GROUP)}
    if name in theirs:
        loaded: type[Strategy] = theirs[name].load()
        return loaded
    raise ValueError(f"strategy {name!r}: allowed are {', '.join(sorted({*_OURS, *theirs}))}")

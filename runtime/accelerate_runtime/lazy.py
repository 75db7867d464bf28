"""Public modules whose names are loaded when they are first used: importing them costs next to nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def attach(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a module that offers names of others.

    Args:
        module: the `__name__` of that module.
        homes: for each name, the module that has it, below `accelerate_runtime` ("state", "plugins.loading").
    """
    root = __name__.rpartition(".")[0]

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{root}.{homes[name]}"), name)
        setattr(sys.modules[module], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *homes})

    return load, names, sorted(homes)

"""Functions of the script that have a say in what is saved and loaded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from torch import nn
from torch.utils.hooks import RemovableHandle

SaveHook = Callable[[list[nn.Module], list[dict[str, Any]], str], None]
LoadHook = Callable[[list[nn.Module], str], None]
Hook = TypeVar("Hook")


class Hooks(Generic[Hook]):
    """Functions that are called in the order they were added, until they are removed."""

    def __init__(self) -> None:
        self._hooks: dict[int, Hook] = OrderedDict()

    def add(self, hook: Hook) -> RemovableHandle:
        """Add a function; the handle takes it back."""
        handle = RemovableHandle(self._hooks)
        self._hooks[handle.id] = hook
        return handle

    def all(self) -> list[Hook]:
        return list(self._hooks.values())

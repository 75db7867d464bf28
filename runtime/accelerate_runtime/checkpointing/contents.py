"""What an Accelerator has to save, and the hooks that have a say in it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ..accumulation import GradientState
from ..data import DataLoaderShard
from ..optimizer import AcceleratedOptimizer
from ..scheduler import AcceleratedScheduler
from ..strategies import Strategy
from ..topology import Topology

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


@dataclass
class Contents:
    """The prepared objects of an Accelerator, in the order of preparation, and what was registered."""

    place: Topology
    strategy: Strategy
    models: list[nn.Module]
    optimizers: list[AcceleratedOptimizer]
    schedulers: list[AcceleratedScheduler]
    loaders: list[DataLoaderShard]
    scaler: torch.amp.GradScaler | None
    gradient_state: GradientState
    registered: list[Any]
    unwrap: Callable[[nn.Module], nn.Module]
    """The model that was prepared, from what `prepare` returned."""
    save_hooks: list[SaveHook]
    load_hooks: list[LoadHook]

    def counts(self) -> dict[str, int]:
        """How many there are of each kind."""
        return {
            "models": len(self.models),
            "optimizers": len(self.optimizers),
            "schedulers": len(self.schedulers),
            "loaders": len(self.loaders),
            "scalers": int(self.scaler is not None),
            "registered objects": len(self.registered),
        }

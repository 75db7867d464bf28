"""What an Accelerator has to save."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..accumulation import GradientState
from ..data import DataLoaderShard
from ..optimizer import AcceleratedOptimizer
from ..precision import SharedScaler
from ..scheduler import AcceleratedScheduler
from ..strategies import Strategy
from ..topology import Topology
from .hooks import LoadHook, SaveHook


@dataclass
class Contents:
    """The prepared objects of an Accelerator, in the order of preparation, and what was registered."""

    place: Topology
    strategy: Strategy
    models: list[nn.Module]
    optimizers: list[AcceleratedOptimizer]
    schedulers: list[AcceleratedScheduler]
    loaders: list[DataLoaderShard]
    scaler: SharedScaler | None
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

"""The library that migrated training scripts import: one API from one CPU to many nodes.

    from accelerate_runtime import Accelerator

    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

Names are loaded when they are first used, so that the command line answers without importing torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .requirements import require_torch, running_as_command

if not running_as_command():
    require_torch()

__version__ = "0.1.0"

_HOMES = {
    "Accelerator": "accelerator",
    "AutocastKwargs": "plugins",
    "DataLoaderConfiguration": "plugins",
    "DistributedDataParallelKwargs": "plugins",
    "DistributedType": "topology",
    "GradScalerKwargs": "plugins",
    "GradientAccumulationPlugin": "plugins",
    "InitProcessGroupKwargs": "plugins",
    "PartialState": "state",
    "ProjectConfiguration": "plugins",
    "synchronize_rng_states": "random",
}

__all__ = [
    "Accelerator",
    "AutocastKwargs",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DistributedType",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "PartialState",
    "ProjectConfiguration",
    "__version__",
    "synchronize_rng_states",
]

if TYPE_CHECKING:
    from .accelerator import Accelerator
    from .plugins import (
        AutocastKwargs,
        DataLoaderConfiguration,
        DistributedDataParallelKwargs,
        GradientAccumulationPlugin,
        GradScalerKwargs,
        InitProcessGroupKwargs,
        ProjectConfiguration,
    )
    from .random import synchronize_rng_states
    from .state import PartialState
    from .topology import DistributedType


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

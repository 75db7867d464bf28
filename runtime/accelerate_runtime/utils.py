"""The helpers that scripts import by name."""

from __future__ import annotations

import os
from typing import Any

import torch

from .collectives import (
    broadcast,
    broadcast_object_list,
    concatenate,
    find_batch_size,
    gather,
    gather_object,
    pad_across_processes,
    reduce,
    send_to_device,
    wait_for_everyone,
)
from .plugins import (
    AutocastKwargs,
    DataLoaderConfiguration,
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
    ProjectConfiguration,
)
from .precision import convert_to_fp32
from .random import set_seed, synchronize_rng_state, synchronize_rng_states
from .topology import DistributedType

__all__ = [
    "AutocastKwargs",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DistributedType",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "KwargsHandler",
    "ProjectConfiguration",
    "broadcast",
    "broadcast_object_list",
    "concatenate",
    "convert_to_fp32",
    "extract_model_from_parallel",
    "find_batch_size",
    "gather",
    "gather_object",
    "pad_across_processes",
    "reduce",
    "save",
    "send_to_device",
    "set_seed",
    "synchronize_rng_state",
    "synchronize_rng_states",
    "wait_for_everyone",
]


def extract_model_from_parallel(model: torch.nn.Module) -> torch.nn.Module:
    """The model inside DistributedDataParallel or DataParallel; another one as it is."""
    parallel = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
    while isinstance(model, parallel):
        model = model.module
    return model


def save(obj: Any, f: str | os.PathLike[str]) -> None:
    """`torch.save(obj, f)`, on the main process only."""
    from . import topology

    if topology.current().is_main_process:
        torch.save(obj, f)

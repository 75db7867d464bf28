"""Files written by one process for all, and read back."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch

from . import pieces, topology
from .checkpointing.plain import load_plain
from .checkpointing.tensors import save_weights, without_duplicates

logger = logging.getLogger(__name__)


def save(
    obj: Any, f: str | os.PathLike[str], save_on_each_node: bool = False, safe_serialization: bool = False
) -> None:
    """Write `obj` to the file `f`, on the main process only.

    Args:
        save_on_each_node: on the first process of each machine instead.
        safe_serialization: as safetensors, which takes a flat dict of tensors; else by `torch.save`. Of tied tensors
            one is written, and the file's metadata name the others.

    Raises:
        ValueError: it holds shards or stages, of which one process has a part; on every process.
    """
    pieces.check(obj, "save()")
    place = topology.current()
    if not (place.is_local_main_process if save_on_each_node else place.is_main_process):
        return
    if safe_serialization:
        further = without_duplicates({k: v for k, v in obj.items() if isinstance(v, torch.Tensor)})[1]
        if further:
            names = ", ".join(f"{name} (the same as {kept})" for name, kept in further.items())
            logger.warning("Removed shared tensor names from %s: %s", f, names)
    save_weights(obj, Path(f), safe_serialization)


def load(f: str | os.PathLike[str], map_location: Any = None, **kwargs: Any) -> Any:
    """What `save` wrote without `safe_serialization`: tensors and plain values, on the CPU by default.

    Args:
        kwargs: of `torch.load`; `weights_only=False` also takes other objects, and trusts the file.

    Raises:
        CheckpointError: the file is missing, damaged, or holds other objects.
    """
    return load_plain(Path(f), **({} if map_location is None else {"map_location": map_location}), **kwargs)

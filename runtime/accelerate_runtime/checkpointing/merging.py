"""The weights of a state in shards, as one file for others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from . import layout
from .layout import CheckpointError
from .sharded import open_shards, read_shards
from .shards import save_sharded

_ONE_FILE = 1 << 62


def merge_fsdp_weights(
    checkpoint_dir: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    safe_serialization: bool = True,
    remove_checkpoint_dir: bool = False,
) -> None:
    """Write the weights that `save_state` left in shards as one file, `model.safetensors`. One process does it.

    Args:
        checkpoint_dir: the folder of the shards (`pytorch_model_fsdp_0`), or of the state, whose first model is taken.
        output_path: a folder.
        safe_serialization: False writes `pytorch_model.bin` by `torch.save`.
        remove_checkpoint_dir: remove the folder of the shards afterwards.

    Raises:
        CheckpointError: there are no shards, or they are not whole.
    """
    folder = Path(checkpoint_dir)
    if (folder / layout.model_shards(0)).is_dir():
        folder = folder / layout.model_shards(0)
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder: there are no shards to merge.")
    reader, metadata = open_shards(folder)
    if not all(key.startswith("model.") for key in metadata.state_dict_metadata):
        raise CheckpointError(f"{folder} holds no model: the shards of models are in pytorch_model_fsdp_0 and so on.")
    state: dict[str, Any] = {
        key: torch.empty(entry.size, dtype=entry.properties.dtype) if isinstance(entry, TensorStorageMetadata) else None
        for key, entry in metadata.state_dict_metadata.items()
    }
    read_shards(reader, state)
    weights = {key.removeprefix("model."): value for key, value in state.items()}
    save_sharded(weights, Path(output_path), _ONE_FILE, safe_serialization)
    if remove_checkpoint_dir:
        shutil.rmtree(folder)

"""A model's weights as a file: safetensors, or torch's own format."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import torch

from ..requirements import require_package
from .layout import CheckpointError

Identity = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]


def identity(tensor: torch.Tensor) -> Identity | None:
    """What two names of one (tied) tensor have in common; None for an empty one, which shares nothing."""
    if hasattr(tensor, "to_local"):  # spread over processes: what is here of it
        tensor = tensor.to_local()
    if tensor.numel() == 0:
        return None
    return tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device


def without_duplicates(state: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Each tensor once, under its first name, and the further names with the one that was kept."""
    kept: dict[str, torch.Tensor] = {}
    first: dict[Identity, str] = {}
    further: dict[str, str] = {}
    for name, tensor in state.items():
        known = identity(tensor)
        if known is not None and known in first:
            further[name] = first[known]
            continue
        if known is not None:
            first[known] = name
        kept[name] = tensor
    return kept, further


def save_safetensors(state: dict[str, Any], path: Path) -> None:
    """Write a state dict of tensors. Of tied tensors one is written, and the file's metadata names the others.

    Raises:
        CheckpointError: something in it is not a dense tensor.
    """
    require_package("safetensors", what="safe_serialization=True")
    from safetensors.torch import save_file

    for name, value in state.items():
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            what = f"a {value.layout} tensor" if isinstance(value, torch.Tensor) else f"of type {type(value).__name__}"
            raise CheckpointError(
                f"{name!r} of the state dict is {what}, which a safetensors file cannot hold: pass "
                "safe_serialization=False."
            )
    kept, further = without_duplicates(state)
    path.touch()
    mode = path.stat().st_mode
    save_file(_apart(kept), path, metadata={"format": "pt", **further})
    path.chmod(mode)  # safetensors leaves a file that nobody else may read


def _apart(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors contiguous, and those that share memory in part (views) copied."""
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        shared = tensor.numel() > 0 and tensor.device.type != "meta" and storage in seen
        seen.add(storage)
        result[name] = tensor.detach().clone() if shared else tensor.detach().contiguous()
    return result


def save_weights(state: dict[str, Any], path: Path, safe: bool) -> None:
    """Write a state dict, as safetensors or by `torch.save`."""
    if safe:
        save_safetensors(state, path)
    else:
        torch.save(state, path)


_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64,
}  # fmt: skip


class SafetensorsHeader:
    """What a safetensors file says of itself: for each name, its type, shape and place in the file.

    The format: 8 bytes that count the header's bytes, the header (JSON), the data (github.com/huggingface/safetensors).

    Raises:
        CheckpointError: this is no whole safetensors file.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else -1
            size = path.stat().st_size
            if not 0 < length <= size - 8:
                raise CheckpointError(f"{path} is no whole safetensors file ({size} bytes).")
            try:
                entries = json.loads(file.read(length))
            except ValueError:
                raise CheckpointError(f"{path} is no whole safetensors file: its header cannot be read.") from None
        self.start = 8 + length
        self.further: dict[str, str] = {k: v for k, v in entries.pop("__metadata__", {}).items() if k != "format"}
        self.entries: dict[str, Any] = entries
        end = self.start + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        if end != size:
            raise CheckpointError(f"{path} has {size} bytes, but its header says {end}: it is not whole.")

    def fits(self, name: str, tensor: torch.Tensor) -> bool:
        """Whether the file's tensor `name` has the type and shape of `tensor`."""
        entry = self.entries[name]
        return _DTYPES.get(entry["dtype"]) is tensor.dtype and tuple(entry["shape"]) == tuple(tensor.shape)

    def offset(self, name: str) -> int:
        """Where in the file the tensor's bytes begin."""
        return self.start + int(self.entries[name]["data_offsets"][0])

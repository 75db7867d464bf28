"""Files of tensors, read once from end to end, straight to where the numbers belong, and summed up on the way.

Loading by way of a second copy costs its memory and its page faults; a mapped file is not copied, but dies with a file
system that takes the file away. So the bytes go from the system's cache to the tensors, block by block, and into the
checksum while they are hot.
"""

from __future__ import annotations

import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..structures import map_tensors
from .manifest import BLOCK, hasher


@dataclass(frozen=True)
class Place:
    """Where a tensor's bytes begin in the file, and the tensor that they go to (of the same type and shape)."""

    offset: int
    tensor: torch.Tensor


def read_into(path: Path, places: list[Place]) -> str:
    """Fill the tensors of `places`; returns the file's checksum. Takes no more memory than the largest that is not a
    contiguous tensor on the CPU."""
    checksum, scratch = hasher(), memoryview(bytearray(BLOCK))
    with path.open("rb", buffering=0) as file:
        at = 0
        for place in sorted(places, key=lambda place: place.offset):
            at += _read(file, place.offset - at, scratch, checksum)
            tensor = place.tensor.detach()
            direct = tensor.device.type == "cpu" and tensor.is_contiguous()
            buffer = tensor if direct else torch.empty(tensor.shape, dtype=tensor.dtype)
            at += _read_tensor(file, buffer, checksum)
            if not direct:
                tensor.copy_(buffer)
        _read(file, path.stat().st_size - at, scratch, checksum)
    return str(checksum.hexdigest())


def _read_tensor(file: Any, tensor: torch.Tensor, checksum: Any) -> int:
    if tensor.numel() == 0:
        return 0
    return _fill(file, tensor.reshape(-1).view(torch.uint8).numpy().data, checksum)


def _fill(file: Any, view: memoryview, checksum: Any) -> int:
    at = 0
    while at < len(view):
        size = file.readinto(view[at : at + BLOCK])
        if not size:
            break  # the file is too short: its checksum tells
        checksum.update(view[at : at + size])
        at += size
    return at


def _read(file: Any, wanted: int, scratch: memoryview, checksum: Any) -> int:
    """Read bytes that belong to no tensor."""
    at = 0
    while at < wanted:
        size = _fill(file, scratch[: min(wanted - at, BLOCK)], checksum)
        if not size:
            break
        at += size
    return at


def storages_in(path: Path, value: Any) -> dict[int, int] | None:
    """Where in a file of `torch.save`, which `value` was mapped from, the tensors' storages begin.

    Returns:
        For each storage's address its offset in the file. None where that cannot be told.
    """
    if not zipfile.is_zipfile(path):  # the format of old versions of torch
        return None
    tensors: list[torch.Tensor] = []
    map_tensors(tensors.append, value, strict=False)
    addresses = sorted({tensor.untyped_storage().data_ptr() for tensor in tensors if _bytes_of(tensor)})
    offsets = _offsets_of_data(path)
    if len(addresses) != len(offsets) or not offsets:
        return None
    start = addresses[0] - offsets[0]
    if any(address - offset != start for address, offset in zip(addresses, offsets, strict=True)):
        return None
    return dict(zip(addresses, offsets, strict=True))


def _offsets_of_data(path: Path) -> list[int]:
    """Where the storages begin: the records `…/data/<number>` of the archive, which are not compressed."""
    offsets = []
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for record in archive.infolist():
            folder, _, name = record.filename.rpartition("/")
            if folder.endswith("/data") and name.isdigit() and record.file_size:
                file.seek(record.header_offset + 26)  # of the local header: lengths of the name and of the extra field
                name_length, extra_length = struct.unpack("<HH", file.read(4))
                offsets.append(record.header_offset + 30 + name_length + extra_length)
    return sorted(offsets)


def _bytes_of(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())


def is_whole_storage(tensor: torch.Tensor) -> bool:
    """Whether the tensor is all of its storage, in order."""
    return tensor.is_contiguous() and tensor.storage_offset() == 0 and _bytes_of(tensor) == tensor.nbytes

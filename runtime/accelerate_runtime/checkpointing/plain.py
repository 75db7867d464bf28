"""Files of `torch.save` that hold tensors and plain values, and are read as such: nothing in them is executed."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from .layout import CheckpointError
from .manifest import BLOCK, hasher


def save_plain(value: Any, path: Path) -> str:
    """Write `value` by `torch.save`; returns the file's checksum.

    The archive's own checksums, slower than all the rest, are left out: ours covers the whole file.
    """
    own = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        with path.open("wb", buffering=0) as file:
            summed = _Summed(file)
            torch.save(value, summed)  # type: ignore[arg-type]
    finally:
        torch.serialization.set_crc32_options(own)
    return str(summed.checksum.hexdigest())


class _Summed:
    """A file that sums up what is written to it."""

    def __init__(self, file: Any) -> None:
        self.file, self.checksum = file, hasher()

    def write(self, data: Any) -> int:
        view = memoryview(data)
        for at in range(0, len(view), BLOCK):
            block = view[at : at + BLOCK]
            self.checksum.update(block)
            while block:
                block = block[self.file.write(block) :]
        return len(view)

    def flush(self) -> None:
        self.file.flush()


def load_plain(path: Path, **arguments: Any) -> Any:
    """What a file holds, on the CPU.

    Args:
        arguments: of `torch.load`.

    Raises:
        CheckpointError: it is damaged, or holds other objects (`weights_only=False` takes them, and trusts the file).
    """
    arguments = {"map_location": "cpu", "weights_only": True, **arguments}
    if arguments.get("mmap") and not zipfile.is_zipfile(path):
        del arguments["mmap"]  # the format of old versions of torch
    try:
        with torch.serialization.safe_globals(_numpy_parts()):
            return torch.load(path, **arguments)
    except pickle.UnpicklingError as error:
        if "weights_only" not in str(error).lower():
            raise CheckpointError(f"{path} cannot be read: {error}") from None
        unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        raise CheckpointError(
            f"{path} holds objects of {', '.join(sorted(unsafe)) or 'unknown classes'}. Reading them can run code of "
            "whoever wrote the file: if you trust it, pass load_kwargs={'weights_only': False}."
        ) from None
    except (RuntimeError, EOFError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise CheckpointError(f"{path} is missing.") from None
        raise CheckpointError(f"{path} cannot be read ({error}): it is damaged, or no file of torch.save.") from None


def _numpy_parts() -> list[Any]:
    """What an array of NumPy (in a random state) is made of."""
    import numpy

    core: Any = getattr(numpy, "_core", None) or numpy.core  # the latter before NumPy 2
    return [core.multiarray._reconstruct, numpy.ndarray, numpy.dtype, type(numpy.dtype(numpy.uint32))]

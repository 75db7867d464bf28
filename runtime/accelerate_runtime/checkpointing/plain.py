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
            try:
                torch.save(value, summed)  # type: ignore[arg-type]
            except Exception:
                if summed.error is not None:  # of which torch's writer does not speak
                    raise OSError(summed.error.errno, summed.error.strerror, str(path)) from None
                raise
    finally:
        torch.serialization.set_crc32_options(own)
    return str(summed.checksum.hexdigest())


class _Summed:
    """A file that sums up what is written to it."""

    def __init__(self, file: Any) -> None:
        self.file, self.checksum = file, hasher()
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        view = memoryview(data)
        for at in range(0, len(view), BLOCK):
            block = view[at : at + BLOCK]
            self.checksum.update(block)
            try:
                while block:
                    block = block[self.file.write(block) :]
            except OSError as error:
                self.error = error
                raise
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
        raise CheckpointError(
            f"{path} holds objects of {', '.join(unsafe_classes(path)) or 'unknown classes'}. Reading them can run "
            "code of whoever wrote the file: if you trust it, pass load_kwargs={'weights_only': False}."
        ) from None
    except (RuntimeError, EOFError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise CheckpointError(f"{path} is missing.") from None
        raise CheckpointError(f"{path} cannot be read ({error}): it is damaged, or no file of torch.save.") from None


def unsafe_classes(path: Path) -> list[str]:
    """The classes and functions in a file that `load_plain` does not take."""
    with torch.serialization.safe_globals(_numpy_parts()):
        found = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    parts = {f"{part.__module__}.{part.__qualname__}" for part in _numpy_parts()}
    return sorted(name for name in found if name not in parts and not name.startswith("_codecs."))


def _numpy_parts() -> list[Any]:
    """What numbers and arrays of NumPy are made of: they stand in random states, and among scripts' own numbers."""
    import numpy

    core: Any = getattr(numpy, "_core", None) or numpy.core  # the latter before NumPy 2
    kinds = {type(numpy.dtype(code)) for code in "?bBhHiIlLqQefdFD"}
    return [core.multiarray._reconstruct, core.multiarray.scalar, numpy.ndarray, numpy.dtype, *kinds]

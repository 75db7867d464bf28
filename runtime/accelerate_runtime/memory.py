"""Memory: batch sizes that fit, letting go of objects, and how much there is."""

from __future__ import annotations

import functools
import gc
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import devices

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(I)?)?B?\s*")
_OUT_OF_MEMORY = (
    "out of memory",  # CUDA, ROCm, XPU, MPS
    "cudnn_status_not_supported",
    "can't allocate memory",  # the CPU's allocator
    "devmem allocation failed",  # HPU
)


def find_executable_batch_size(
    function: Callable[..., Any] | None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[], int] | None = None,
) -> Any:
    """Decorator: call `function(batch_size, ...)` with smaller and smaller batches until it fits into memory.

    The size that fits is where the next call starts. Each process decides alone: where only one of several runs out of
    memory, the others wait for it in vain.

    Args:
        function: takes the batch size as its first argument; callers leave it out.
        starting_batch_size: the first size to try.
        reduce_batch_size_fn: called after each failure; returns the next size. By default, nine tenths.

    Raises:
        TypeError: a caller passed the batch size too.
        RuntimeError: even one sample does not fit.
    """
    if function is None:
        return functools.partial(
            find_executable_batch_size,
            starting_batch_size=starting_batch_size,
            reduce_batch_size_fn=reduce_batch_size_fn,
        )
    batch_size = starting_batch_size

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal batch_size
        _refuse_batch_size(function, args)
        while batch_size > 0:
            clear_device_cache(garbage_collection=True)
            try:
                return function(batch_size, *args, **kwargs)
            except Exception as error:
                if not should_reduce_batch_size(error):
                    raise
            # only here, where the error and its frames are gone, can what they held be freed
            batch_size = reduce_batch_size_fn() if reduce_batch_size_fn is not None else int(batch_size * 0.9)
        raise RuntimeError("No executable batch size found, reached zero.")

    return run


def _refuse_batch_size(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(args) >= len(names):
        given = ", ".join(f"{name}={value!r}" for name, value in zip(names[1:], args[1:], strict=False))
        raise TypeError(
            f"Batch size was passed into `{function.__name__}` as the first argument, or too many arguments were: the "
            f"decorator passes the batch size itself. Call `{function.__name__}({given})`."
        )


def should_reduce_batch_size(exception: Exception) -> bool:
    """Whether an error says that memory ran out (or cuDNN does not take the size)."""
    if isinstance(exception, torch.OutOfMemoryError):
        return True
    text = str(exception).lower()
    return isinstance(exception, RuntimeError) and any(sign in text for sign in _OUT_OF_MEMORY)


def clear_device_cache(garbage_collection: bool = False) -> None:
    """Give the accelerator's cached memory back to it.

    Args:
        garbage_collection: collect Python's garbage first, which takes long.
    """
    if garbage_collection:
        gc.collect()
    if torch.accelerator.is_available():
        torch.accelerator.empty_cache()


def release_memory(*objects: Any) -> list[None]:
    """Collect garbage and release cached memory; returns None for each of `objects`, to assign to them."""
    count = len(objects)
    del objects
    clear_device_cache(garbage_collection=True)
    return [None] * count


def get_max_memory(max_memory: dict[int | str, int | str] | None = None) -> dict[int | str, int]:
    """Free memory in bytes: of each accelerator by its index, and of the machine as "cpu".

    An Apple GPU shares the machine's, which is then told by its name alone.

    Args:
        max_memory: limits of the caller's own; then only sizes such as "10GB" are turned into bytes.
    """
    if max_memory is not None:
        return {name: convert_file_size_to_int(size) for name, size in max_memory.items()}
    device = devices.accelerator()
    if device is None:
        return {"cpu": _free_memory_of_machine()}
    if not devices.has_its_own_memory(device):
        return {device.type: _free_memory_of_machine()}
    free: dict[int | str, int] = {
        index: int(torch.accelerator.get_memory_info(index)[0]) for index in range(devices.count())
    }
    return {**free, "cpu": _free_memory_of_machine()}


def convert_file_size_to_int(size: int | str) -> int:
    """A size in bytes.

    Args:
        size: bytes, or text such as "10GB" (powers of 1000) or "10GiB" (powers of 1024); also K, M and T.

    Raises:
        ValueError: it is neither.
    """
    match = None if isinstance(size, bool) else _SIZE.fullmatch(str(size).upper())
    if match is None:
        raise ValueError(f'{size!r} is not a size: pass bytes, or text such as "10GB" or "500MiB"')
    number, unit, binary = match.groups()
    power = " KMGT".index(unit) if unit else 0
    return int(float(number) * (1024 if binary else 1000) ** power)


def _free_memory_of_machine() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        import psutil  # type: ignore[import-untyped,unused-ignore]
    except ModuleNotFoundError:
        raise ImportError("get_max_memory() needs psutil on this system: pip install psutil") from None
    return int(psutil.virtual_memory().available)

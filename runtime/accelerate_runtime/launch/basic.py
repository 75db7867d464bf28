"""A launch config for this machine, written without asking."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from ..devices import CUDA, accelerator, kind_of
from ..vocabulary import PRECISIONS
from .config import LaunchConfig
from .devices import count_devices
from .files import default_path, write_config


def write_basic_config(
    mixed_precision: str = "no", save_location: str | os.PathLike[str] | None = None
) -> Path | Literal[False]:
    """Write a launch config that trains on all devices of this machine, one process each.

    Args:
        mixed_precision: "no", "fp16", "bf16" or "fp8".
        save_location: the file, JSON where its name says so, else YAML; by default the one that `launch` reads.

    Returns:
        The file's path; False where there was a file already, which is left as it is.

    Raises:
        ValueError: `mixed_precision` is none of these.
    """
    path = default_path() if save_location is None else Path(save_location)
    if path.exists():
        print(f"{path} is there already and is left as it is; choose another file, or run `accelerate-runtime config`.")
        return False
    mixed_precision = mixed_precision.lower()
    if mixed_precision not in PRECISIONS:
        raise ValueError(f"mixed_precision={mixed_precision!r}: allowed are {', '.join(PRECISIONS)}")
    count = count_devices()
    kind = spread_over_devices() if count > 1 else "NO"
    write_config(
        path,
        LaunchConfig(
            distributed_type=kind, use_cpu=count == 0, num_processes=max(1, count), mixed_precision=mixed_precision
        ),
    )
    return path


def spread_over_devices() -> str:
    """The distributed type of several devices of this machine's kind."""
    found = accelerator()
    return (CUDA if found is None else kind_of(found)).spread

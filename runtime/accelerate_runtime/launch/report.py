"""`accelerate-runtime env`: versions, devices and configuration, to paste into a report."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import torch
import torch.distributed as dist

from .. import __version__, devices
from .engines import ENGINES
from .files import default_path, read_raw


def report(config_file: Path | None = None) -> str:
    """The report's lines.

    Args:
        config_file: the launch config to show; by default the one that `launch` reads.

    Raises:
        ConfigError: the file cannot be read.
    """
    lines = {
        "accelerate-runtime": __version__,
        "Python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "numpy": _version("numpy"),
        "memory": _memory(),
        "accelerator": _accelerators(),
        "distributed backends": ", ".join(_backends()) or "none",
        "environment": " ".join(f"{key}={os.environ[key]}" for key in sorted(os.environ) if _concerns_us(key)) or "-",
    }
    path = config_file or default_path()
    found = config_file is not None or path.is_file()
    lines["launch config"] = str(path) if found else f"none (there is no {path})"
    shown = [f"{name + ':':22}{value}" for name, value in lines.items()]
    return "\n".join(shown + ([f"  {key}: {value}" for key, value in read_raw(path).items()] if found else []))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
    except (AttributeError, ValueError, OSError):
        return "unknown"


def _accelerators() -> str:
    names = devices.names()
    return f"{devices.count()} x {', '.join(names)}" if names else "none (CPU)"


def _backends() -> list[str]:
    if not dist.is_available():
        return []
    return [
        name
        for name in dist.Backend.backend_list
        if name not in ("undefined", "fake") and dist.is_backend_available(name)
    ]


def _concerns_us(variable: str) -> bool:
    of_engines = (variable for engine in ENGINES.values() for variable, _ in engine.options.values())
    ours = (*devices.VISIBLE_DEVICES.values(), *of_engines, "OMP_NUM_THREADS", "HF_HOME")
    return variable.startswith("ACCELERATE_") or variable in ours

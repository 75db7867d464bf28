"""How many accelerators torch would find here. torch itself, slow to import, is asked only where nothing else knows."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

from .. import devices
from ..devices import CUDA, EXTENSIONS, XPU


def count_devices() -> int:
    """The devices of the kind that training here would run on; 0 where that is the CPU."""
    kinds = _built_for()
    if kinds is not None and not any(importlib.util.find_spec(name) for name in EXTENSIONS):
        if kinds == {CUDA.name}:
            return _count_cuda()
        if not kinds:
            return int(sys.platform == "darwin" and os.uname().machine == "arm64")
    return devices.count()


def _built_for() -> set[str] | None:
    """The kinds of GPU that the installed torch was built for, read from its version file; None where it has none."""
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        try:
            text = (Path(folder) / "version.py").read_text(encoding="utf-8")
        except OSError:
            continue
        found = dict(re.findall(rf"^({CUDA.name}|hip|{XPU.name})\b[^=\n]*=\s*(.*)$", text, flags=re.M))
        if CUDA.name in found:
            return {kind for kind, version in found.items() if version.strip() != "None"}
    return None


def _count_cuda() -> int:
    """NVIDIA GPUs that the driver shows this process; CUDA_VISIBLE_DEVICES counts."""
    import ctypes

    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value

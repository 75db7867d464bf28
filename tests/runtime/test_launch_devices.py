"""Counting devices without torch: the same number as torch's, and torch only where nothing else knows."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from accelerate_runtime.launch import devices

VERSION = "from typing import Optional\n\n__version__ = '2.13.0'\ncuda: Optional[str] = {}\nhip: Optional[str] = {}\n"


class Spec:
    def __init__(self, folder: Path) -> None:
        self.submodule_search_locations = [str(folder)]


def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cuda: str, hip: str) -> None:
    """Pretend that torch was built so, and that no extension is installed."""
    (tmp_path / "version.py").write_text(VERSION.format(cuda, hip))
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: Spec(tmp_path) if name == "torch" else None)


def test_the_count_is_torchs() -> None:
    assert devices.count_devices() == torch.accelerator.device_count()


def test_torch_is_not_imported_for_a_build_without_gpus() -> None:
    if torch.version.hip or torch.version.xpu:
        pytest.skip("torch must count these")
    code = "import sys; from accelerate_runtime.launch.devices import count_devices; count_devices(); "
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", "import sys; sys.argv = ['accelerate-runtime']; " + code], check=True)


def test_the_driver_counts_for_a_cuda_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built(monkeypatch, tmp_path, "'12.8'", "None")
    monkeypatch.setattr(devices, "_count_cuda", lambda: 3)
    assert devices.count_devices() == 3


def test_torch_counts_for_other_builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built(monkeypatch, tmp_path, "None", "'6.4'")
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 5)
    assert devices.count_devices() == 5


def test_the_driver_is_asked_as_cuda_asks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        def __init__(self, broken: int) -> None:
            self.broken = broken

        def cuInit(self, flags: int) -> int:
            return self.broken

        def cuDeviceGetCount(self, count: object) -> int:
            count._obj.value = 2  # type: ignore[attr-defined]
            return 0

    for broken, count in ((0, 2), (100, 0)):
        monkeypatch.setattr(ctypes, "CDLL", lambda name, broken=broken: Driver(broken))
        assert devices._count_cuda() == count

    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert devices._count_cuda() == 0

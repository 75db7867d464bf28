"""tests/gpu/run.sh where there is no GPU: it says so, and its exit code is not that of checks that passed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "gpu" / "run.sh"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a script for Linux")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([str(SCRIPT), *words], capture_output=True, text=True, env=environment, timeout=60)


def test_without_a_gpu_nothing_was_checked() -> None:
    got = run()
    assert got.returncode == 3
    assert "NO GPU" in got.stdout
    assert "NOTHING WAS CHECKED" in got.stdout


def test_a_check_that_is_not_there_is_an_error() -> None:
    got = run("fp16", "fp17")
    assert got.returncode == 2
    assert "no such check: fp17; there are devices_and_memory, fp32," in got.stdout

"""Under every engine a process that is killed ends the others, who name it, in bounded time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "killed_rank.py"
ENGINES = ["fsdp", "zero1", "zero3"]  # scripts/stopping.py has DistributedDataParallel

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(os.name != "posix", reason="processes are killed by a signal")]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_process_is_named_and_ends_the_training(engine: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    runs = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), engine, str(rank), port], env=environment, stderr=subprocess.PIPE, text=True
        )
        for rank in (0, 1)
    ]
    try:
        runs[1].communicate(timeout=120)
        killed = time.monotonic()
        _, told = runs[0].communicate(timeout=60)
    finally:
        for run in runs:
            run.kill()
    assert (runs[0].returncode, runs[1].returncode) == (1, -9), told[-3000:]
    assert time.monotonic() - killed < 45
    assert "process 0 waited in " in told
    assert "process 1 was last seen" in told

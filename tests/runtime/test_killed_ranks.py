"""Under every engine a killed process ends all, in bounded time; the others name it, and so does the launcher."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "killed_rank.py"
LAUNCHED = """
import os, signal, torch
from torch import nn
from accelerate_runtime import Accelerator
accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model, optimizer = accelerator.prepare(model, optimizer)
for step in range(1000):
    accelerator.backward(model(torch.ones(2, 8)).sum())
    optimizer.step()
    optimizer.zero_grad()
    if step == 2 and accelerator.process_index == 1:
        print(type(accelerator.state.strategy).__name__, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""
ENGINES = ["fsdp", "zero1", "zero3", "tensor", "pipeline"]  # scripts/stopping.py has DistributedDataParallel

BY_FLAGS = {
    "DataParallel": "",
    "FullyShardedDataParallel": "--use_fsdp",
    "TensorParallel": "--use_parallelism_config --parallelism_config_tp_size 2",
}

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
    assert "process 0 waited in " in told, told[-3000:]
    assert "process 1 was last seen" in told


@pytest.mark.parametrize("engine", BY_FLAGS)
def test_the_launcher_stops_all_and_names_the_killed_process(tmp_path: Path, engine: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(LAUNCHED, encoding="utf-8")
    command = [sys.executable, "-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", "2"]
    began = time.monotonic()
    run = subprocess.run(
        [*command, *BY_FLAGS[engine].split(), str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.stdout.strip().splitlines()[-1] == engine
    assert run.returncode == 128 + 9
    assert "was killed by SIGKILL; the other processes were stopped" in run.stderr
    assert time.monotonic() - began < 60

"""A process that is killed while training ends all, under every engine, and the launcher says which it was."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(os.name != "posix", reason="processes are killed by a signal")]

SCRIPT = """
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
ENGINES = {
    "DataParallel": "",
    "FullyShardedDataParallel": "--use_fsdp",
    "TensorParallel": "--use_parallelism_config --parallelism_config_tp_size 2",
}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_process_ends_all(tmp_path: Path, engine: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", "2"]
    began = time.monotonic()
    run = subprocess.run(
        [*command, *ENGINES[engine].split(), str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.stdout.strip() == engine
    assert run.returncode == 128 + 9
    assert "was killed by SIGKILL; the other processes were stopped" in run.stderr
    assert time.monotonic() - began < 60

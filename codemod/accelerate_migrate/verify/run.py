"""Train a script in a process of its own, under the recorder, and read what it did."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelerate_migrate.verify import recorder
from accelerate_migrate.verify.compare import Trace, read_trace


@dataclass(frozen=True, slots=True)
class Run:
    """How a recorded run ended. ``traces`` has one trace a process, in the order of ranks."""

    returncode: int
    stdout: str
    stderr: str
    traces: tuple[Trace, ...]


def run_recorded(
    script: Path,
    args: Sequence[str] = (),
    *,
    cwd: Path | None = None,
    cuda_on_cpu: bool = False,
    launcher: Sequence[str] = (),
    processes: int = 1,
    python: str = sys.executable,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> Run:
    """Train ``script`` on the CPU and record it.

    ``launcher`` is a command that takes a script and its arguments (``accelerate-runtime launch --num_processes 2``);
    without one, ``python`` runs the script. Raises ``subprocess.TimeoutExpired`` where the run takes longer than
    ``timeout`` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="accelerate-migrate-") as folder:
        trace = Path(folder) / "trace"
        command = [*(launcher or [python]), str(Path(recorder.__file__)), "--trace", str(trace)]
        if cuda_on_cpu:
            command.append("--cuda-on-cpu")
        command += [str(script), *args]
        # One thread, and no real GPU: two runs can only be compared bit by bit where they compute alike.
        fixed = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **fixed, **(env or {})},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
        files = [trace] if processes == 1 else [Path(f"{trace}.{rank}") for rank in range(processes)]
        traces = tuple(read_trace(file) if file.exists() else () for file in files)
    return Run(done.returncode, done.stdout, done.stderr, traces)

"""Training scripts for real, one run after another, and reading the numbers in what they print."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from accelerate_migrate.verify.run import Run, run_recorded

TIMEOUT = 300  # a slow machine takes 10 s to import torch; a hang takes for ever
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def launcher(processes: int, *, config: Path | None = None) -> list[str]:
    """The runtime's launch command for CPU processes."""
    command = [sys.executable, "-m", "accelerate_runtime", "launch"]
    if config is not None:
        command += ["--config_file", str(config)]
    return [*command, "--cpu", "--num_processes", str(processes)]


def train(
    script: Path,
    runs: Sequence[Sequence[str]],
    *,
    cwd: Path | None = None,
    original: bool = False,
    processes: int = 1,
    config: Path | None = None,
) -> list[Run]:
    """Run a script once for each list of arguments, all in one folder (its own); fail with its output if it fails.

    The original may hard-code CUDA, so it runs with CUDA redirected; a migrated script must not need that.
    """
    done = []
    for args in runs:
        run = run_recorded(
            script,
            args,
            cwd=cwd or script.parent,
            cuda_on_cpu=original,
            launcher=launcher(processes, config=config) if processes > 1 else (),
            processes=processes,
            timeout=TIMEOUT,
        )
        assert run.returncode == 0, f"{script.name} {' '.join(args)}\n{run.stdout[-2000:]}\n{run.stderr[-4000:]}"
        done.append(run)
    return done


def printed(run: Run, pattern: str = "") -> list[str]:
    """The lines of a run that are not blank and in which the pattern is found."""
    return [line for line in run.stdout.splitlines() if line.strip() and re.search(pattern, line)]


def numbers(line: str) -> list[float]:
    """The numbers in a printed line."""
    return [float(number) for number in NUMBER.findall(line)]

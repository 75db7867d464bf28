"""A script migrated with ``--checkpoints state`` that is killed goes on as if nothing had happened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accelerate_migrate.findings import Target
from support.cases import CASES, texts
from support.training import launcher, printed, train

pytestmark = pytest.mark.e2e


def run(folder: Path, processes: int, *arguments: str, killed: bool = False) -> list[str]:
    """The losses that the main process printed."""
    command = launcher(processes) if processes > 1 else [sys.executable]
    done = subprocess.run(
        [*command, "train.py", *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode != 0) == killed, done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line.startswith("step ")]


@pytest.mark.parametrize(
    ("target", "processes"), [(Target.RUNTIME, 1), (Target.RUNTIME, 2), (Target.ACCELERATE, 1)], ids=str
)
def test_a_killed_training_goes_on(tmp_path: Path, target: Target, processes: int) -> None:
    case = next(case for case in CASES if case.name == "training_state")
    text = texts(case.migrate(target))["train.py"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
        (folder / "train.py").write_bytes(text)
    expected = run(whole, processes)
    assert len(expected) == 4 * 8 // processes
    if processes == 1:
        (tmp_path / "train.py").write_bytes(case.before["train.py"])
        (original,) = train(tmp_path / "train.py", [[]], original=True)
        assert printed(original, "^step ") == expected
    run(parts, processes, "--die-in", "2", killed=True)
    assert run(parts, processes, "--resume", "last.pt") == expected[len(expected) // 2 :]
    assert (parts / "best.pt").is_dir()

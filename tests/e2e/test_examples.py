"""The scripts in examples/ do what they say, on one process and, launched, on two."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LAUNCH = ["-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", "2"]
PROCESSES = pytest.mark.parametrize("launch", [[], LAUNCH], ids=["one process", "two processes"])

pytestmark = pytest.mark.e2e


def run(launch: list[str], script: str, *arguments: str, cwd: Path) -> str:
    """What an example printed."""
    command = [sys.executable, *launch, str(EXAMPLES / script), *arguments]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@PROCESSES
def test_trackers(launch: list[str], tmp_path: Path) -> None:
    printed = run(launch, "trackers.py", cwd=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "runs" / "circle.jsonl").read_text().splitlines()]
    steps = 3 * (8 if launch else 16)
    assert lines[0]["config"] == {"lr": 0.05, "batch_size": 32, "epochs": 3}
    assert [line["step"] for line in lines[1:] if "loss" in line["values"]] == [*range(steps)]
    accuracies = [line["values"]["accuracy"] for line in lines[1:] if "accuracy" in line["values"]]
    assert [f"{accuracy:.3f}" for accuracy in accuracies] == re.findall(r"accuracy (\S+)", printed)
    assert accuracies[-1] > 0.9
    assert f"logged {steps} steps to {(tmp_path / 'runs').resolve()}" in printed


@PROCESSES
def test_mixed_precision(launch: list[str], tmp_path: Path) -> None:
    asked = ["--mixed_precision", "bf16"]  # of the launcher, or of the script
    printed = run([*launch, *asked] if launch else [], "mixed_precision.py", *([] if launch else asked), cwd=tmp_path)
    results = re.findall(r"epoch (\d): (\d+) of 256 right in (\w+)", printed)
    assert [(epoch, mode) for epoch, _, mode in results] == [("0", "bf16"), ("1", "bf16"), ("2", "bf16")]
    assert int(results[-1][1]) > 240


@PROCESSES
def test_checkpoint_resume(launch: list[str], tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    whole = run(launch, "checkpoint_resume.py", cwd=tmp_path / "whole")
    assert "final loss" in whole
    assert "final loss" not in run(launch, "checkpoint_resume.py", "--stop_after", "25", cwd=tmp_path)
    resumed = run(launch, "checkpoint_resume.py", cwd=tmp_path)
    assert resumed == "going on after step 20\n" + whole


@pytest.mark.parametrize(("script", "good"), [("one_to_many.py", 0.05), ("accumulation.py", 0.2)])
def test_the_number_of_processes_changes_nothing(script: str, good: float, tmp_path: Path) -> None:
    final = [float(run(launch, script, cwd=tmp_path).split("final loss ")[1]) for launch in ([], LAUNCH)]
    assert final[0] == pytest.approx(final[1], rel=0.02, abs=0.001)
    assert final[0] < good

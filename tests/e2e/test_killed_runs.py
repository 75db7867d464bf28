"""SIGKILL at random moments, in a step, in a save, between files: training resumes as if it had never stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = int(os.environ.get("KILLS", "6"))  # of each kind; KILLS=25 takes five minutes

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(os.name != "posix", reason="processes are forked")]


@pytest.mark.parametrize("processes", [1, 2])
def test_killed_runs_give_the_losses_of_one_that_was_not(tmp_path: Path, processes: int) -> None:
    script = Path(__file__).with_name("killed_runs.py")
    command = [sys.executable, str(script), str(tmp_path / "runs"), str(processes), str(KILLS), "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert run.returncode == 0, run.stderr[-4000:]
    found = json.loads(run.stdout)
    assert found["kills"] >= KILLS
    steps = 12 // processes
    assert [len(seen) for seen in found["whole"]] == [steps] * processes
    for torn in found["torn"]:
        assert torn == found["whole"]

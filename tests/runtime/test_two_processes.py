"""What two processes do together: one launch runs all checks of scripts/*_checks.py; each is a test here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "two_processes.py"
SOURCES = [path.read_text(encoding="utf-8") for path in sorted(SCRIPT.parent.glob("*_checks.py"))]
CHECKS = re.findall(r"^def (check_\w+)", "\n".join(SOURCES), flags=re.M)

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a launch that has ended well."""
    command = [sys.executable, "-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", "2"]
    folder = tmp_path_factory.mktemp("two")
    run = subprocess.run([*command, str(SCRIPT), str(folder)], capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def verdicts(launched: Path) -> dict[str, list[str]]:
    """For each check, what the processes said."""
    said = [json.loads((launched / f"verdicts.{rank}.json").read_text()) for rank in (0, 1)]
    return {check: [one.get(check, "it did not run") for one in said] for check in CHECKS}


@pytest.mark.parametrize("check", CHECKS)
def test_on_two_processes(verdicts: dict[str, list[str]], check: str) -> None:
    assert verdicts[check] == ["ok", "ok"], "\n".join(verdicts[check])


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of threads on Linux only")
def test_no_thread_of_the_group_is_left_when_the_interpreter_ends(launched: Path) -> None:
    for rank in (0, 1):
        left = json.loads((launched / f"threads.{rank}.json").read_text())
        assert left
        assert not [name for name in left if "gloo" in name]

"""What two processes do together: one launch runs all checks of scripts/two_processes.py; each is a test here."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "two_processes.py"
CHECKS = re.findall(r"^def (check_\w+)", SCRIPT.read_text(encoding="utf-8"), flags=re.M)

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """For each check, what the processes said."""
    command = [sys.executable, "-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", "2"]
    run = subprocess.run(
        [*command, str(SCRIPT), str(tmp_path_factory.mktemp("two"))], capture_output=True, text=True, timeout=240
    )
    found: dict[str, list[str]] = {}
    for line in run.stdout.splitlines():
        if match := re.match(r"@(\d) (check_\w+) (.*)", line):
            found.setdefault(match[2], []).append(ast.literal_eval(match[3]))
    assert run.returncode == 0, run.stderr[-4000:]
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_on_two_processes(verdicts: dict[str, list[str]], check: str) -> None:
    said = verdicts.get(check, [])
    assert said == ["ok", "ok"], "\n".join(said) or "it did not run"

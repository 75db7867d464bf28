"""What two processes do together: one launch runs all checks of scripts/*_checks.py; each is a test here.

Those of DeepSpeed, which changes functions of torch for the whole process, have a launch of their own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "two_processes.py"
SOURCES = sorted(SCRIPT.parent.glob("*_checks.py"))
LAUNCHES = {
    "deepspeed": [path for path in SOURCES if path.stem.startswith("deepspeed")],
    "others": [path for path in SOURCES if not path.stem.startswith("deepspeed")],
}
CHECKS = [
    (launch, check)
    for launch, paths in LAUNCHES.items()
    for path in paths
    for check in re.findall(r"^def (check_\w+)", path.read_text(encoding="utf-8"), flags=re.M)
]

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of launches that have ended well."""
    command = [sys.executable, "-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", "2"]
    folders = {}
    for launch, paths in LAUNCHES.items():
        folder = folders[launch] = tmp_path_factory.mktemp(launch)
        words = [*command, str(SCRIPT), str(folder), *(path.stem for path in paths)]
        run = subprocess.run(words, capture_output=True, text=True, timeout=240)
        assert run.returncode == 0, run.stderr[-4000:]
    return folders


@pytest.fixture(scope="module")
def verdicts(launched: dict[str, Path]) -> dict[tuple[str, str], list[str]]:
    """For each check, what the processes said."""
    found = {}
    for launch, folder in launched.items():
        said = [json.loads((folder / f"verdicts.{rank}.json").read_text()) for rank in (0, 1)]
        found |= {(launch, check): [one.get(check, "it did not run") for one in said] for _, check in CHECKS}
    return found


@pytest.mark.parametrize(("launch", "check"), CHECKS)
def test_on_two_processes(verdicts: dict[tuple[str, str], list[str]], launch: str, check: str) -> None:
    assert verdicts[launch, check] == ["ok", "ok"], "\n".join(verdicts[launch, check])


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of threads on Linux only")
def test_no_thread_of_the_group_is_left_when_the_interpreter_ends(launched: dict[str, Path]) -> None:
    for rank in (0, 1):  # DeepSpeed keeps one group to itself
        left = json.loads((launched["others"] / f"threads.{rank}.json").read_text())
        assert left
        assert not [name for name in left if "gloo" in name]

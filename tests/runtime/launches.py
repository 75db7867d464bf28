"""Launching from a fork of the test process, which has torch already: a launch costs what its processes cost."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from accelerate_runtime import cli


@dataclass
class Outcome:
    code: int
    out: str
    err: str


class Launcher:
    """A running `accelerate-runtime launch`.

    Args:
        folder: for what it writes.
        words: what stands after `launch`.
    """

    def __init__(self, folder: Path, *words: object) -> None:
        self._files = folder / f"{time.monotonic_ns()}.out", folder / f"{time.monotonic_ns()}.err"
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._become([str(word) for word in words])

    def _become(self, words: list[str]) -> None:
        code = 1
        try:
            for number, file in enumerate(self._files, 1):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            cli.main(["launch", *words])
        except SystemExit as stop:
            code = int(stop.code or 0)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def wait(self) -> Outcome:
        _, status = os.waitpid(self.pid, 0)
        return Outcome(os.waitstatus_to_exitcode(status), *(file.read_text() for file in self._files))


def launched(folder: Path, *words: object) -> Outcome:
    """What a launch came to."""
    return Launcher(folder, *words).wait()


def appears(path: Path, seconds: float = 60) -> Path:
    """`path`, once there is such a file."""
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)
    return path


def is_alive(pid: int) -> bool:
    """Whether a process runs (one that has ended but was not waited for does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"

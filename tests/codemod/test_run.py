"""Programs in several processes: the same results, and the death of one is the matter of its program alone."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from accelerate_migrate.discover import discover
from accelerate_migrate.findings import FileResult, Options, Status
from accelerate_migrate.run import migrate_all
from accelerate_migrate.source import Script

from .conftest import SCRIPT, stub_migration

needs_fork = pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="workers must inherit the stub")


def dies_on_request(scripts: Sequence[Script], options: Options) -> list[FileResult]:
    """The stub, but a script that asks for it takes its process down, as the kernel does where memory runs out."""
    if any(b"die" in script.data for script in scripts):
        os._exit(9)
    return stub_migration(scripts, options)


@pytest.fixture
def programs(folder: Path) -> list[str]:
    """Five programs, one of them deadly."""
    for number in range(5):
        os.mkdir(f"p{number}")
        Path(f"p{number}/train.py").write_text(SCRIPT + "die\n" * (number == 1))
    return [f"p{number}" for number in range(5)]


@needs_fork
def test_a_worker_that_dies_takes_nobody_along(programs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accelerate_migrate.migrate.migrate_program", dies_on_request)
    results = [program[0] for program in migrate_all(discover(programs).programs(), Options(), jobs=2)]
    assert [result.path for result in results] == [f"p{number}/train.py" for number in range(5)]
    assert [number for number, result in enumerate(results) if result.status is Status.ERROR] == [1]
    assert "died" in results[1].findings[0].message


@pytest.mark.usefixtures("stub")
def test_a_file_that_stays_costs_no_memory(folder: Path) -> None:
    Path("plain.py").write_text("x = 1\n" * 1000)
    ((result,),) = migrate_all(discover(["."]).programs(), Options())
    assert (result.status, result.before) == (Status.UNCHANGED, b"")

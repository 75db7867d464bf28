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


def test_a_script_that_says_nothing_of_torch_starts_the_training(folder: Path) -> None:
    """What makes the trainer is known by the script alone: without it, nothing would construct the class."""
    Path("trainer.py").write_text(
        "from torch import nn, optim\n"
        "from torch.utils.data import DataLoader\n\n"
        "class Trainer:\n"
        "    def __init__(self, batch_size):\n"
        "        self.net = nn.Linear(8, 3)\n"
        "        self.optimizer = optim.SGD(self.net.parameters(), lr=0.1)\n"
        "        self.loader = DataLoader(range(99), batch_size)\n\n"
        "    def run(self):\n"
        "        for x in self.loader:\n"
        "            self.optimizer.zero_grad()\n"
        "            self.net(x).mean().backward()\n"
        "            self.optimizer.step()\n\n"
        "if False:\n    Trainer(3)\n"
    )
    Path("main.py").write_text(
        'from trainer import Trainer\n\nif __name__ == "__main__":\n    print("begin")\n    Trainer(4).run()\n'
    )
    Path("other.py").write_text('if __name__ == "__main__":\n    print("nothing")\n')
    ((main, other, trainer),) = migrate_all(discover(["."]).programs(), Options())
    assert [result.status for result in (main, other, trainer)] == [
        Status.UNCHANGED,
        Status.UNCHANGED,
        Status.MIGRATED,
    ]
    assert [(finding.line, finding.code) for finding in main.findings] == [(4, "AM230")]
    assert not other.findings

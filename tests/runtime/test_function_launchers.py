"""Functions on several processes: notebook_launcher and debug_launcher."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from accelerate_runtime import Accelerator, PartialState, debug_launcher, notebook_launcher
from accelerate_runtime.launch import functions

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no fork")


def say(folder: Path, greeting: str = "hello") -> None:
    """Leave what this process is, and what all of them say."""
    accelerator = Accelerator()
    total = accelerator.reduce(torch.tensor(accelerator.process_index + 1), "sum")
    text = f"{greeting} {accelerator.num_processes} {int(total)} {accelerator.mixed_precision} {accelerator.device}"
    (folder / str(accelerator.process_index)).write_text(text)


def fail(folder: Path) -> None:
    raise RuntimeError(f"process {PartialState().process_index} fails")


def fail_twice(folder: Path) -> None:
    tries = folder / f"tries{os.environ['LOCAL_RANK']}"
    tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
    if len(tries.read_text()) < 3:
        raise RuntimeError("not yet")


def said(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_one_process_runs_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook_launcher(say, (tmp_path, "hi"), num_processes=1, mixed_precision="bf16")
    assert said(tmp_path) == {"0": "hi 1 1 bf16 cpu"}
    assert "Launching training on one" in capsys.readouterr().out
    assert "ACCELERATE_MIXED_PRECISION" not in os.environ
    assert Accelerator().mixed_precision == "no"


@pytest.mark.e2e
def test_two_processes_train_together(tmp_path: Path) -> None:
    notebook_launcher(say, (tmp_path,), num_processes=2, mixed_precision="bf16", use_port=0)
    assert said(tmp_path) == {"0": "hello 2 3 bf16 cpu", "1": "hello 2 3 bf16 cpu"}
    assert "RANK" not in os.environ


@pytest.mark.e2e
def test_a_failure_is_told_and_may_be_tried_again(tmp_path: Path) -> None:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    with pytest.raises(ChildFailedError, match=r"process \d fails"):
        notebook_launcher(fail, (tmp_path,), num_processes=2)
    notebook_launcher(fail_twice, (tmp_path,), num_processes=2, max_restarts=3)
    assert min(map(len, said(tmp_path).values())) >= 2


@pytest.mark.e2e
def test_debug_launcher_forks_whatever_it_is_given(tmp_path: Path) -> None:
    Accelerator()  # its processes do not take this one for theirs
    debug_launcher(lambda: say(tmp_path))
    assert said(tmp_path) == {"0": "hello 2 3 no cpu", "1": "hello 2 3 no cpu"}
    debug_launcher(say, (tmp_path, "alone"), num_processes=1)
    assert said(tmp_path)["0"] == "alone 1 1 no cpu"
    with pytest.raises(Exception, match=r"process \d fails"):
        debug_launcher(fail, (tmp_path,))
    assert PartialState().num_processes == 1


def test_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mixed_precision='half'"):
        notebook_launcher(say, num_processes=1, mixed_precision="half")
    with pytest.raises(ValueError, match="node_rank=2: must be from 0 to num_nodes - 1, which is 1"):
        notebook_launcher(say, num_processes=1, node_rank=2, num_nodes=2)
    with pytest.raises(ValueError, match="num_processes=0"):
        notebook_launcher(say, num_processes=0)
    Accelerator()
    with pytest.raises(ValueError, match="create it inside the training function only"):
        notebook_launcher(say, (tmp_path,), num_processes=2)


NOTEBOOK = """
from pathlib import Path
from accelerate_runtime import Accelerator, notebook_launcher
from accelerate_runtime.launch import functions
functions._start_method = lambda: "spawn"  # as where the accelerator is in use

def train(folder):
    accelerator = Accelerator(cpu=True)
    (folder / str(accelerator.process_index)).write_text(str(accelerator.num_processes))

notebook_launcher(train, (Path({folder!r}),), num_processes=2)
"""


@pytest.mark.e2e
def test_a_notebooks_function_travels_by_value(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    code = NOTEBOOK.format(folder=str(tmp_path))
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert got.returncode == 0, got.stderr
    assert said(tmp_path) == {"0": "2", "1": "2"}


def test_without_the_means_to_travel_it_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def train() -> None: ...

    train.__module__ = "__main__"
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    monkeypatch.setattr(functions, "_start_method", lambda: "spawn")
    with pytest.raises(RuntimeError, match=r"train\(\) is not in a module .*: pip install cloudpickle"):
        notebook_launcher(train, num_processes=2)


def test_a_taken_port_is_replaced() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert functions._free_port(port) not in (0, port)
    assert functions._free_port(port) == port

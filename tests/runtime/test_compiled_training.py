"""Compiled models on several processes: the same numbers, the same names, and states that others load."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "compiled_training.py"

RUNS = [
    f"{strategy}/{how}" for strategy in ("ddp", "fsdp") for how in ("plain", "whole", "regional", "before", "after")
]
GOES_ON = ["ddp/plain+ddp/whole", "fsdp/regional+fsdp/plain", "fsdp/plain+fsdp/before", "fsdp/whole+ddp/regional"]
ALONE = ["single/plain", "single/plain+fsdp/regional", "single/whole+ddp/before"]

pytestmark = pytest.mark.e2e


def launch(folder: Path, runs: Sequence[str], processes: int) -> None:
    how = ["-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", str(processes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *how, str(SCRIPT), str(folder), *runs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]


def result(folder: Path, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{run.replace('/', '-')}.json").read_text())
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all runs left what they did: first those on two processes, from whose states one process goes on."""
    folder = tmp_path_factory.mktemp("compiled")
    launch(folder, [*RUNS, "fsdp/fullgraph", *GOES_ON], processes=2)
    launch(folder, ALONE, processes=1)
    return folder


@pytest.mark.parametrize("run", [*RUNS, "fsdp/fullgraph", *GOES_ON, *ALONE])
def test_it_trains_as_one_process_does_without_a_compiler(folder: Path, run: str) -> None:
    found, plain = result(folder, run), result(folder, "single/plain")["losses"]
    assert found["losses"] == pytest.approx(plain[-len(found["losses"]) :], rel=1e-5)


@pytest.mark.parametrize("run", RUNS)
def test_names_are_those_of_the_model(folder: Path, run: str) -> None:
    found = result(folder, run)
    assert found["names"] == result(folder, "single/plain")["names"]
    assert (found["graphs"] > 0) == (not run.endswith("plain")), "nothing was compiled"


def test_blocks_alike_share_a_graph(folder: Path) -> None:
    # a block's with an input that needs no gradient, and one that does; the head's
    assert result(folder, "fsdp/regional")["graphs"] == result(folder, "fsdp/fullgraph")["graphs"] == 3


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_code_built_by_inductor_trains_alike(folder: Path) -> None:
    launch(folder, ["fsdp/inductor"], processes=2)
    assert result(folder, "fsdp/inductor")["losses"] == pytest.approx(
        result(folder, "single/plain")["losses"], rel=1e-4
    )

"""One training under every engine: the losses, norms and evaluation of one process, and states that go everywhere.

`python tests/e2e/engines/table.py` prints all cells; here are those that differ most from each other.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    path = Path(__file__).parent / "engines" / "table.py"
    spec = importlib.util.spec_from_file_location("engines_table", path)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    sys.modules["engines_table"] = module
    spec.loader.exec_module(module)
    return module


table = _load()

ALONE = ["transformer/single/no/1", "transformer/single/no/4", "transformer/single/bf16/4", "cnn/single/no/4"]
ALONE += ["writer/single/no/4", "writer/single/bf16/1"]
CELLS = {
    2: [
        "transformer/ddp/no/4",
        "transformer/fsdp/no/1",
        "transformer/fsdp/no/4",
        "transformer/fsdp/bf16/4",
        "transformer/fsdp-grad-op/no/4",
        "transformer/fsdp-full-state/no/1",
        "transformer/fsdp-offload/no/4",
        "transformer/tp/no/1",
        "transformer/tp-sp/no/4",
        "transformer/tp-loss/bf16/4",
        "transformer/zero0/bf16/4",
        "transformer/zero1/no/4",
        "transformer/zero2/bf16/4",
        "transformer/zero2-offload/no/4",
        "transformer/zero3/no/1",
        "cnn/ddp/no/4",
        "cnn/fsdp/no/4",
        "cnn/zero3/no/4",
        "transformer/ddp/no/4+transformer/single/no/4",
        "transformer/fsdp/no/4+transformer/single/no/4",
        "transformer/tp/no/1+transformer/fsdp/no/1",
        "transformer/zero3/no/4+transformer/single/no/4",
        "transformer/zero2-offload/no/4+transformer/single/no/4",
        "transformer/zero1/no/1+transformer/fsdp/no/1",
        "transformer/fsdp/no/1+transformer/zero3/no/1",
        "transformer/pp/no/4",
        "transformer/pp/bf16/4",
        "transformer/pp-1f1b/no/4",
        "cnn/pp/no/4",
        "writer/cp/no/4",
        "writer/cp-alltoall/bf16/1",
        "writer/cp/no/4+writer/single/no/4",
        "transformer/pp/no/4+transformer/single/no/4",
    ],
    4: [
        "transformer/fsdp-hybrid/no/4",
        "transformer/tp-fsdp/no/4",
        "transformer/tp-ddp/no/1",
        "transformer/fsdp/no/1+transformer/fsdp/no/1",
        "transformer/tp-fsdp/no/1+transformer/tp/no/1",
        "transformer/fsdp/no/4+transformer/tp-sp/no/4",
        "transformer/zero3/no/1+transformer/zero3/no/1",
        "transformer/pp-dp/no/4",
        "transformer/pp-dp/no/4+transformer/pp/no/4",
    ],
    1: [
        "transformer/single/no/4+transformer/ddp/no/4",
        "transformer/single/no/4+transformer/tp-sp/no/4",
        "transformer/single/no/1+transformer/fsdp/no/1",
        "transformer/single/no/1+transformer/fsdp-full-state/no/1",
        "transformer/single/no/1+transformer/zero3/no/1",
        "cnn/single/no/4+cnn/fsdp/no/4",
        "cnn/single/no/4+cnn/zero3/no/4",
        "transformer/single/no/4+transformer/pp-1f1b/no/4",
    ],
}

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all cells were run, in an order in which each finds the state that it goes on from."""
    folder = tmp_path_factory.mktemp("engines")
    table.launch(folder, ALONE, 1)
    for processes, cells in CELLS.items():
        table.launch(folder, cells, processes)
    return folder


@pytest.mark.parametrize(("processes", "cell"), [(count, cell) for count, cells in CELLS.items() for cell in cells])
def test_every_engine_trains_as_one_process_does(folder: Path, processes: int, cell: str) -> None:
    found = table.result(folder, cell, processes)
    assert found.error is None, found.error
    exact = "/no/" in cell
    assert found.losses < (1e-5 if exact else 5e-3)
    assert found.norms < (1e-5 if exact else 2e-2)
    assert found.evaluation or not exact

"""Runs the training of training.py under every engine, and prints how far each is from one process.

python tests/e2e/engines/table.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

TRAINING = Path(__file__).with_name("training.py")
ZERO = ["zero0", "zero1", "zero2", "zero3", "zero1-offload", "zero2-offload", "zero3-offload"]
STRATEGIES = {
    2: [
        *("ddp", "fsdp", "fsdp-grad-op", "fsdp-full-state", "fsdp-offload"),
        *("tp", "tp-sp", "tp-loss", "pp", "pp-1f1b", *ZERO),
    ],
    4: ["ddp", "fsdp", "fsdp-hybrid", "tp-fsdp", "tp-ddp", "pp-dp", "zero2", "zero3"],
}
"""Which engines are tried on how many processes."""
SPLIT = {2: ["cp", "cp-alltoall", "ddp"], 4: ["cp-fsdp"]}
"""The same for texts whose loss is of each word, so that sequences can be split."""
ELSEWHERE = {
    "transformer/cp": "pools over whole sequences, of which each process has a part; see writer/cp",
    "cnn/cp": "its samples are no sequences",
    "transformer/xla": "torch_xla has a torch of its own, and one process drives all devices: make test-xla",
    "transformer/megatron-core": "trains models made of Megatron's own layers, not any module",
}
"""Cells that are empty, and why."""

MODELS, MODES, STEPS = ("transformer", "cnn", "writer"), ("no", "bf16"), ("1", "4")
ALONE = [f"{model}/single/{mode}/{steps}" for model, mode, steps in product(MODELS, MODES, STEPS)]
SPREAD = {
    count: [f"transformer/{engine}/{mode}/{steps}" for engine, mode, steps in product(engines, MODES, STEPS)]
    for count, engines in STRATEGIES.items()
}
for count, engines in SPLIT.items():
    SPREAD[count] += [f"writer/{engine}/{mode}/{steps}" for engine, mode, steps in product(engines, MODES, STEPS)]
SPREAD[2] += [f"cnn/{engine}/no/{steps}" for engine, steps in product(("ddp", "fsdp", "pp", "zero2", "zero3"), STEPS)]
GOES_ON = {  # cells that go on from the state of another engine, or of another number of processes
    1: [f"transformer/single/no/1+transformer/{engine}/no/1" for engine in STRATEGIES[2]],
    2: [f"transformer/{engine}/no/4+transformer/single/no/4" for engine in STRATEGIES[2]],
    4: [
        "transformer/fsdp-hybrid/no/1+transformer/fsdp/no/1",
        "transformer/fsdp/no/1+transformer/tp/no/1",
        "transformer/tp-fsdp/no/1+transformer/tp-sp/no/1",
        "transformer/tp-ddp/no/1+transformer/ddp/no/1",
        "transformer/zero3/no/1+transformer/zero2/no/1",
        "transformer/pp-dp/no/1+transformer/pp/no/1",
        "writer/cp-fsdp/no/1+writer/cp/no/1",
    ],
}
GOES_ON[1].append("writer/single/no/1+writer/cp/no/1")
GOES_ON[2].append("writer/cp/no/4+writer/single/no/4")


@dataclass
class Result:
    """What one cell did on some number of processes, beside the same training on one process."""

    cell: str
    processes: int
    error: str | None
    losses: float
    """The largest relative difference of a loss; of a gradient norm; and whether evaluation counted the same."""
    norms: float
    evaluation: bool


def launch(folder: Path, cells: Iterable[str], processes: int) -> None:
    """Run cells one after the other, in one launch."""
    how = [] if processes == 1 else ["-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", str(processes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": "1"}
    command = [sys.executable, *how, str(TRAINING), str(folder), *cells]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(cells)} on {processes} processes ended with {done.returncode}:\n{done.stderr}")


def result(folder: Path, cell: str, processes: int) -> Result:
    """What a cell that was launched did."""
    found = _read(folder, cell, processes)
    if "error" in found:
        return Result(cell, processes, found["error"], 0, 0, False)
    model, _, mode, steps = cell.partition("+")[0].split("/")
    alone = _read(folder, f"{model}/single/{mode}/{steps}", 1)
    return Result(
        cell,
        processes,
        None,
        _apart(found["losses"], alone["losses"]),
        _apart(found["norms"], alone["norms"]),
        found["right"] == alone["right"],
    )


def _read(folder: Path, cell: str, processes: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{cell.replace('/', '-')}.{processes}.json").read_text())
    return found


def _apart(mine: list[float], alone: list[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(mine, alone[-len(mine) :], strict=True))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        launch(folder, ALONE, 1)
        show("cell", "processes", "losses", "norms", "evaluation")
        for cells in (SPREAD, GOES_ON):
            for processes in sorted(cells):
                launch(folder, cells[processes], processes)
                for cell in cells[processes]:
                    one = result(folder, cell, processes)
                    told = ("as on one" if one.evaluation else "other") if one.error is None else one.error[-80:]
                    show(cell, str(processes), f"{one.losses:.0e}", f"{one.norms:.0e}", told)
        for cell, why in ELSEWHERE.items():
            show(cell, "-", "-", "-", f"empty: {why}")


def show(*columns: str) -> None:
    print(" ".join(f"{text:{width}}" for text, width in zip(columns, (70, 9, 8, 8, 0), strict=True)))


if __name__ == "__main__":
    main()

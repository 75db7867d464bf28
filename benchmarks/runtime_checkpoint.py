"""save_state and load_state beside torch.save and torch.load of the same tensors.

python benchmarks/runtime_checkpoint.py [ROUNDS] [MIB OF PARAMETERS]

With Adam a state is three times its parameters. CPU time counts; memory is the peak beyond what was held before.
"""

from __future__ import annotations

import gc
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from _common import line
from torch import nn

from accelerate_runtime import Accelerator


def main(rounds: int, mebibytes: int) -> None:
    torch.set_num_threads(1)
    side = int((mebibytes * 2**18 / 8) ** 0.5)
    model = nn.Sequential(*(nn.Linear(side, side) for _ in range(8)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    model(torch.randn(2, side)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(model, optimizer)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        file = folder / "raw.pt"

        def raw_save() -> None:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)

        def raw_load() -> None:
            state = torch.load(file, map_location="cpu", weights_only=True)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])

        def save() -> None:
            accelerator.save_state(folder / "state")

        def load() -> None:
            accelerator.load_state(folder / "state")

        total = 3 * mebibytes
        note = f"({total} MiB, CPU time)"

        def remove() -> None:
            file.unlink(missing_ok=True)
            shutil.rmtree(folder / "state", ignore_errors=True)

        ratio, _ = compare(raw_save, save, rounds, remove)
        raw_save()
        save()
        print(line("save_state", f"{ratio:.3f} x torch.save", ratio, 1.05, "", "1.48", note))
        ratio, extra = compare(raw_load, load, rounds)
        print(line("load_state", f"{ratio:.3f} x torch.load", ratio, 0.25, "", "0.75", note))
        largest = side * side * 4 / 2**20
        figure = f"{extra:.0f} MiB more memory"
        print(line("load_state", figure, extra, largest + 1, " MiB", "1000", "(the largest tensor, and 1 MiB)"))


def compare(
    raw: Callable[[], None], ours: Callable[[], None], rounds: int, before_each: Callable[[], None] = lambda: None
) -> tuple[float, float]:
    """The median ratio of CPU time, and our median peak of extra memory in MiB."""
    raw()
    ours()
    ratios, extras = [], []
    for number in range(rounds):
        times = {}
        for action in (raw, ours) if number % 2 else (ours, raw):
            before_each()
            gc.collect()
            os.sync()
            before = reset_peak()
            start = time.process_time()
            action()
            times[action] = time.process_time() - start
            if action is ours:
                extras.append(peak() - before)
        ratios.append(times[ours] / times[raw])
    return statistics.median(ratios), statistics.median(extras)


def reset_peak() -> float:
    """Forget the peak of this process's memory so far (Linux); returns what it holds, in MiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> float:
    text = Path("/proc/self/status").read_text()
    return next(int(row.split()[1]) for row in text.splitlines() if row.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main(*map(int, [*sys.argv[1:], "5", "500"][:1] + [*sys.argv[2:], "500"][:1]))

"""A prepared loader's batches beside those of a raw DataLoader: on one process, and (with a sampler) on two.

python benchmarks/runtime_loader.py [ROUNDS]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count

import torch
from _common import line, take_turns
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from accelerate_runtime import Accelerator

BATCH, BATCHES = 16, 200  # of an epoch and process
TARGETS = {1: (1.03, "1.08"), 2: (1.10, "1.26")}


def main(rounds: int) -> None:
    if "RANK" not in os.environ and "BENCH_ALONE" not in os.environ:
        launch = [sys.executable, "-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", "2"]
        alone = subprocess.run([sys.executable, __file__, str(rounds)], env={**os.environ, "BENCH_ALONE": "1"})
        sys.exit(alone.returncode or subprocess.run([*launch, __file__, str(rounds)]).returncode)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    processes = accelerator.num_processes
    data = TensorDataset(torch.randn(processes * BATCHES * BATCH, 32), torch.randn(processes * BATCHES * BATCH, 1))

    def raw() -> Iterator[None]:
        sampler = DistributedSampler(data) if processes > 1 else None
        loader = DataLoader(data, batch_size=BATCH, sampler=sampler, shuffle=sampler is None)
        for epoch in count():
            if sampler is not None:
                sampler.set_epoch(epoch)
            yield from (None for _ in loader)

    def prepared() -> Iterator[None]:
        loader = accelerator.prepare(DataLoader(data, batch_size=BATCH, shuffle=True))
        for _ in count():
            yield from (None for _ in loader)

    measured = take_turns({"raw": raw(), "prepared": prepared(), "raw again": raw()}, rounds, chunk=BATCHES)
    ratio, again = accelerator.reduce(torch.tensor(measured), "mean").tolist()
    if accelerator.is_main_process:
        name = f"loader per batch, {'two processes' if processes > 1 else 'one process'}"
        target, accelerate = TARGETS[processes]
        print(line(name, f"{ratio:.3f} x raw loader", ratio, target, "", accelerate, f"(raw x raw {again:.3f})"))


if __name__ == "__main__":
    main(*(int(text) for text in [*sys.argv[1:], "150"][:1]))

"""A training step on two gloo processes, prepared beside raw DistributedDataParallel with a DistributedSampler.

python benchmarks/runtime_ddp.py [ROUNDS]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count

import torch
from _common import line, take_turns
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from accelerate_runtime import Accelerator

BATCH, STEPS = 16, 100  # of an epoch


def main(rounds: int) -> None:
    if "RANK" not in os.environ:
        launch = [sys.executable, "-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", "2"]
        sys.exit(subprocess.run([*launch, __file__, str(rounds)]).returncode)
    torch.set_num_threads(1)
    accelerator = Accelerator()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(2 * STEPS * BATCH, 32), torch.randn(2 * STEPS * BATCH, 1))
    loss_of = nn.MSELoss()

    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 1))
        return model, torch.optim.SGD(model.parameters(), lr=1e-3)

    def raw() -> Iterator[None]:
        model, optimizer = build()
        model = DistributedDataParallel(model)
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
        for epoch in count():
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss_of(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
                yield

    def prepared() -> Iterator[None]:
        loader = DataLoader(data, batch_size=BATCH, shuffle=True)
        model, optimizer, loader = accelerator.prepare(*build(), loader)
        for _ in count():
            for x, y in loader:
                accelerator.backward(loss_of(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
                yield

    measured = take_turns({"raw": raw(), "prepared": prepared(), "raw again": raw()}, rounds)
    ratio, again = accelerator.reduce(torch.tensor(measured), "mean").tolist()
    if accelerator.is_main_process:
        name, note = "step, two gloo processes", f"(raw x raw {again:.3f})"
        print(line(name, f"{ratio:.3f} x raw DDP", ratio, 1.05, "", "1.25", note))


if __name__ == "__main__":
    main(*(int(text) for text in [*sys.argv[1:], "300"][:1]))

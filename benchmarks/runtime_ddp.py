"""A training step on two gloo processes, prepared beside raw DistributedDataParallel with a DistributedSampler.

python benchmarks/runtime_ddp.py [ROUNDS] [STEPS]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from runtime_common import interleave, report
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from accelerate_runtime import Accelerator

BATCH = 16


def main(rounds: int, steps: int) -> None:
    if "RANK" not in os.environ:
        launch = [sys.executable, "-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", "2"]
        sys.exit(subprocess.run([*launch, __file__, str(rounds), str(steps)]).returncode)
    torch.set_num_threads(1)
    accelerator = Accelerator()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(2 * steps * BATCH, 32), torch.randn(2 * steps * BATCH, 1))
    loss_of = nn.MSELoss()

    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 1))
        return model, torch.optim.SGD(model.parameters(), lr=1e-3)

    def raw() -> Callable[[], None]:
        model, optimizer = build()
        model = DistributedDataParallel(model)
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=BATCH, sampler=sampler)

        def epoch() -> None:
            sampler.set_epoch(sampler.epoch + 1)
            for x, y in loader:
                loss_of(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
            dist.barrier()

        return epoch

    def prepared() -> Callable[[], None]:
        loader = DataLoader(data, batch_size=BATCH, shuffle=True)
        model, optimizer, loader = accelerator.prepare(*build(), loader)

        def epoch() -> None:
            for x, y in loader:
                accelerator.backward(loss_of(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
            dist.barrier()

        return epoch

    rows = interleave({"raw DDP": raw(), "prepared": prepared(), "raw DDP again": raw()}, rounds)
    if accelerator.is_main_process:
        report("step, two gloo processes", rows, steps, "<= 1.05")


if __name__ == "__main__":
    main(*(int(text) for text in [*sys.argv[1:], "11", "100"][:2]))

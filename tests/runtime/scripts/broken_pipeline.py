"""A pipeline of two processes in which one fails: broken_pipeline.py killed|order."""

from __future__ import annotations

import os
import signal
import sys

import torch
from torch import nn

from accelerate_runtime import Accelerator, ParallelismConfig


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)  # used after the blocks
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.norm(x) if sys.argv[1] == "order" else x


accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(pp_size=2))
model = accelerator.prepare(Net())
for step in range(3):
    loss = model(torch.ones(8, 4)).sum()
    if step == 1 and accelerator.process_index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    accelerator.backward(loss)

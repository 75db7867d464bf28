"""Buffers that training changes (BatchNorm's statistics), which the engines that shard leave to each process."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..plugins import DistributedDataParallelKwargs
from .base import StrategySetup


def share_buffers(model: nn.Module, setup: StrategySetup) -> None:
    """Have the buffers of `model` be those of the main process before the first forward after one that trained.

    So does DistributedDataParallel, unless there is a `DistributedDataParallelKwargs(broadcast_buffers=False)`.
    """
    handler = setup.handlers.get(DistributedDataParallelKwargs)
    buffers = [buffer for buffer in model.buffers() if buffer.numel()]
    if not buffers or (isinstance(handler, DistributedDataParallelKwargs) and not handler.broadcast_buffers):
        return
    changed = False

    def share(*_: Any) -> None:
        nonlocal changed
        if changed:
            for buffer in buffers:
                numbers = buffer.contiguous()
                dist.broadcast(numbers, 0)
                buffer.copy_(numbers)
        changed = torch.is_grad_enabled() and model.training

    model.register_forward_pre_hook(share, prepend=True)

"""What the checks on two processes share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator
from accelerate_runtime.utils import set_seed

FOLDER = Path(sys.argv[1])
accelerator = Accelerator()
me = accelerator.process_index


def numbers(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(float(count)))


def everyone(value: Any) -> list[Any]:
    parts: list[Any] = [None, None]
    dist.all_gather_object(parts, value)
    return parts


def batches_of(loader: DataLoader[Any]) -> list[list[float]]:
    return [batch[0].flatten().tolist() for batch in loader]


def seen_by_all(loader: DataLoader[Any]) -> list[float]:
    return [x for part in everyone(batches_of(loader)) for batch in part for x in batch]


def diverge() -> None:
    """Bring the processes' random states apart, as dropout on different data does."""
    set_seed(7, device_specific=True)

"""Processes that were asked for different things, or given different batches of one model."""

from __future__ import annotations

import pytest
import torch
from both import me
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator, DataLoaderConfiguration, division
from accelerate_runtime.state import AcceleratorState
from accelerate_runtime.utils import ParallelismConfig, TorchPipelineParallelConfig


def check_the_first_accelerators_are_compared() -> None:
    for arguments, told in (
        ({"gradient_accumulation_steps": 1 + me}, "num_steps is 1 on process 0, 2 on process 1"),
        (
            {"dataloader_config": DataLoaderConfiguration(split_batches=me == 0)},
            "split_batches is True on process 0, False on process 1",
        ),
        (
            {"parallelism_config": ParallelismConfig(tp_size=2) if me == 0 else None},
            "the strategy is tensor on process 0, ddp on process 1",
        ),
    ):
        AcceleratorState._reset_state()
        with pytest.raises(ValueError, match=rf"Accelerator\(\) was asked for different things: .*{told}"):
            Accelerator(**arguments)  # type: ignore[arg-type]


def check_later_accelerators_may_be_made_by_some_processes() -> None:
    Accelerator()
    if me == 0:
        Accelerator(gradient_accumulation_steps=2)


def _apart(config: ParallelismConfig, seed: int) -> None:
    """Prepare a model over both processes, and take a first batch of data drawn from `seed`."""
    try:
        accelerator = Accelerator(parallelism_config=config)
        torch.manual_seed(seed)
        data = TensorDataset(torch.randn(8, 4), torch.arange(8))
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        torch.manual_seed(0)
        _, loader = accelerator.prepare(model, DataLoader(data, batch_size=4, shuffle=True))
        for _ in range(2):
            next(iter(loader))
    finally:
        division.forget()


def _configs() -> list[ParallelismConfig]:
    halves = TorchPipelineParallelConfig(num_microbatches=2)
    return [ParallelismConfig(tp_size=2), ParallelismConfig(pp_size=2, pp_handler=halves), ParallelismConfig(cp_size=2)]


def check_processes_of_one_model_read_the_same_data() -> None:
    for config in _configs():
        _apart(config, seed=1)
    for config in _configs():
        with pytest.raises(ValueError, match="first batch of a prepared loader is not the same on processes 0 and 1"):
            _apart(config, seed=1 + me)


def check_a_split_model_is_called_with_the_same() -> None:
    try:
        accelerator = Accelerator(parallelism_config=ParallelismConfig(tp_size=2))
        model = accelerator.prepare(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)))
        with pytest.raises(ValueError, match="what Sequential was first called with is not the same"):
            model(torch.full((2, 4), float(me)))
    finally:
        division.forget()

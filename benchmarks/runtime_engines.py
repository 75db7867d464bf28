"""A training step on two gloo processes, prepared beside the raw engine (DistributedDataParallel, fully_shard,
parallelize_module, DeepSpeed) with a DistributedSampler.

python benchmarks/runtime_engines.py [ROUNDS]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import torch
from _common import line, take_turns
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from accelerate_runtime import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin, ParallelismConfig

BATCH, STEPS = 16, 100  # of an epoch


def main(rounds: int) -> None:
    if "RANK" not in os.environ:
        launch = [sys.executable, "-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", "2"]
        sys.exit(subprocess.run([*launch, __file__, str(rounds)]).returncode)
    torch.set_num_threads(1)
    measure(
        "step, two gloo processes", "raw DDP", stepped(DistributedDataParallel), Accelerator(), rounds, 1.05, "1.25"
    )
    plugin = FullyShardedDataParallelPlugin(auto_wrap_policy="size_based_wrap", min_num_params=1000)
    tensor = Accelerator(parallelism_config=ParallelismConfig(tp_size=2))
    measure("step, TP on two processes", "raw parallelize_module", stepped(split), tensor, rounds, 1.03)
    measure("step, FSDP on two processes", "raw FSDP2", stepped(sharded), Accelerator(fsdp_plugin=plugin), rounds, 1.03)
    for stage in (2, 3):
        accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=stage))
        measure(f"step, ZeRO-{stage} on two processes", "raw DeepSpeed", engine(stage), accelerator, rounds, 1.03)


Raw = Callable[[nn.Module], tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor], None]]]
"""From a model to what is called with a batch, and to what takes a step with a loss."""


def stepped(wrap: Callable[[nn.Module], nn.Module]) -> Raw:
    """A loop of torch around what `wrap` makes."""

    def start(model: nn.Module) -> Any:
        model = wrap(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def step(loss: torch.Tensor) -> None:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, step

    return start


def engine(stage: int) -> Raw:
    """A loop as DeepSpeed's documentation has it."""

    def start(model: nn.Module) -> Any:
        import deepspeed

        config = {
            "train_micro_batch_size_per_gpu": BATCH,
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
        }
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        made, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)

        def step(loss: torch.Tensor) -> None:
            made.backward(loss)
            made.step()

        return made, step

    return start


def sharded(model: nn.Module) -> nn.Module:
    """As the plugin above has it."""
    for part in model:
        if sum(parameter.numel() for parameter in part.parameters()) >= 1000:
            fully_shard(part)
    fully_shard(model)
    return model


def split(model: nn.Module) -> nn.Module:
    """As the plan that is derived has it."""
    mesh = init_device_mesh("cpu", (2,))
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def measure(
    name: str,
    beside: str,
    start: Raw,
    accelerator: Accelerator,
    rounds: int,
    target: float,
    accelerate: str = "",
) -> None:
    """Print the CPU time of a prepared step as a ratio to that of the raw engine, which `start` makes."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(2 * STEPS * BATCH, 32), torch.randn(2 * STEPS * BATCH, 1))
    loss_of = nn.MSELoss()

    def build() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 1))

    def raw() -> Iterator[None]:
        model, step = start(build())
        place = accelerator.state.strategy.data_place
        sampler = DistributedSampler(data, place.num_processes, place.process_index)
        loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
        for epoch in count():
            sampler.set_epoch(epoch)
            for x, y in loader:
                step(loss_of(model(x), y))
                yield

    def prepared() -> Iterator[None]:
        model = build()
        loader = DataLoader(data, batch_size=BATCH, shuffle=True)
        model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-3), loader)
        for _ in count():
            for x, y in loader:
                accelerator.backward(loss_of(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
                yield

    measured = take_turns({"raw": raw(), "prepared": prepared(), "raw again": raw()}, rounds)
    ratio, again = accelerator.reduce(torch.tensor(measured), "mean").tolist()
    if accelerator.is_main_process:
        print(line(name, f"{ratio:.3f} x {beside}", ratio, target, "", accelerate, f"(raw x raw {again:.3f})"))


if __name__ == "__main__":
    main(*(int(text) for text in [*sys.argv[1:], "300"][:1]))

"""What two processes hold under each strategy, in bytes, against the table of docs/library/choosing_a_strategy.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from accelerate_runtime import (
    Accelerator,
    DistributedDataParallelKwargs,
    FullyShardedDataParallelPlugin,
    ParallelismConfig,
    division,
)
from accelerate_runtime.utils import GradientAccumulationPlugin, TorchPipelineParallelConfig, TorchTensorParallelConfig

PAGE = Path(__file__).parents[3] / "docs" / "library" / "choosing_a_strategy.md"
PROCESSES = 2


def table(name: str = "memory") -> dict[str, list[float]]:
    """The rows by name, each with its numbers of bytes for each parameter."""
    lines = PAGE.read_text(encoding="utf-8").split(f"<!-- {name} -->\n")[1].split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {row[0].replace("`", ""): [value(cell) for cell in row[1:]] for row in rows}


def value(cell: str) -> float:
    """Of "8", "4 + 4", "4 / N" or "2 + 4 / N"."""
    assert re.fullmatch(r"\d+( / N)?( \+ \d+( / N)?)*", cell)
    terms = [term.partition(" / ") for term in cell.split(" + ")]
    return sum(int(number) / (PROCESSES if divisor else 1) for number, _, divisor in terms)


ASKED: dict[str, dict[str, Any]] = {
    "single": {"strategy": "single"},
    "ddp": {},
    "ddp, gradient_as_bucket_view=True": {
        "kwargs_handlers": [DistributedDataParallelKwargs(gradient_as_bucket_view=True)]
    },
    **{
        f"fsdp, {name}": {
            "fsdp_plugin": FullyShardedDataParallelPlugin(
                sharding_strategy=name, auto_wrap_policy="transformer_based_wrap"
            )
        }
        for name in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD")
    },
    "pipeline": {
        "parallelism_config": ParallelismConfig(
            pp_size=PROCESSES, pp_handler=TorchPipelineParallelConfig(at_end=["last"])
        )
    },
    "tensor": {
        "parallelism_config": ParallelismConfig(
            tp_size=PROCESSES,
            tp_handler=TorchTensorParallelConfig(plan={"blocks.*.wide": "colwise", "blocks.*.narrow": "rowwise"}),
        )
    },
}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(torch.relu(self.wide(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 64), nn.Linear(64, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class Counted:
    """A training of windows of two batches, and what its process holds, in bytes for each parameter of the model."""

    def __init__(self, mixed_precision: str = "no", sync_each_batch: bool = False, sgd: bool = False, **asked: Any):
        windows = GradientAccumulationPlugin(num_steps=2, sync_each_batch=sync_each_batch)
        self.accelerator = Accelerator(mixed_precision=mixed_precision, gradient_accumulation_plugin=windows, **asked)
        model = Net()
        self.number = sum(parameter.numel() for parameter in model.parameters())
        self.shapes = {tuple(p.shape) for p in model.parameters() if p.dim() == 2}
        optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9) if sgd else torch.optim.AdamW(model.parameters())
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.trained = self.optimizer.optimizer.param_groups[0]["params"]  # the shards, whatever the model has now
        self.copies: list[torch.Tensor] = []

    def batch(self) -> tuple[float, float]:
        """Go on by a batch: what was held more between forward and backward, and gradients after backward."""
        self.copies = []
        with self.accelerator.accumulate(self.model):
            with saved_tensors_hooks(self._note, lambda tensor: tensor):
                loss = self.model(torch.randn(16, 8)).square().mean()
            more = self._each([*self.trained, *self.gathered(), *self.copies]) - self.parameters()
            self.copies = []
            self.accelerator.backward(loss)
            gradients = self.gradients()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return more, gradients

    def _note(self, tensor: torch.Tensor) -> torch.Tensor:
        """Note the copies of weights that autocast makes and backward needs."""
        if tensor.dtype == torch.bfloat16 and {tuple(tensor.shape), tuple(tensor.t().shape)} & self.shapes:
            self.copies.append(tensor)
        return tensor

    def in_no_part(self) -> float:
        """The fraction of parameters that are in no wrapped part."""
        inside = sum(parameter.numel() for parameter in self.model.blocks.parameters())
        return 1 - inside / self.number

    def not_split(self) -> float:
        """The fraction of parameters that are whole on each process."""
        kept = (p for p in self.trained if not (isinstance(p, DTensor) and p.placements[0].is_shard()))
        return sum(parameter.numel() for parameter in kept) / self.number

    def own_part(self) -> float:
        """The fraction of parameters that this process has."""
        return sum(parameter.numel() for parameter in self.trained) / self.number

    def parameters(self) -> float:
        return self._each(self.trained)

    def gradients(self) -> float:
        gradients = [parameter.grad for parameter in self.trained if parameter.grad is not None]
        held = self._each([*gradients, *self._whole_gradients()])
        reducer = getattr(self.model, "reducer", None)
        if reducer is not None and all(
            gradient.untyped_storage().nbytes() == gradient.nbytes for gradient in gradients
        ):
            held += self._each(bucket.buffer() for bucket in reducer._get_zeros_like_grad_buckets())
        return held

    def states(self) -> float:
        entries = self.optimizer.optimizer.state.values()
        return self._each(value for entry in entries for value in entry.values() if value.dim())

    def gathered(self) -> Iterator[torch.Tensor]:
        """The whole parameters that FSDP has at present; those it has let go are empty."""
        for parameter in self._fsdp_parameters():
            yield from parameter.all_gather_outputs
            if hasattr(parameter, "_unsharded_param"):
                yield parameter._unsharded_param

    def _whole_gradients(self) -> Iterator[torch.Tensor]:
        for parameter in self._fsdp_parameters():
            whole = getattr(parameter, "_unsharded_param", None)
            found = (parameter.unsharded_accumulated_grad, whole.grad if whole is not None else None)
            yield from (gradient for gradient in found if gradient is not None)

    def _fsdp_parameters(self) -> Iterator[Any]:
        for part in self.model.modules():
            if isinstance(part, FSDPModule) and (group := part._get_fsdp_state()._fsdp_param_group) is not None:
                yield from group.fsdp_params

    def _each(self, tensors: Iterable[torch.Tensor]) -> float:
        """Bytes of the memory behind the tensors, each counted once."""
        held = {}
        for tensor in tensors:
            storage = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).untyped_storage()
            held[storage.data_ptr()] = storage.nbytes()
        return sum(held.values()) / self.number


def check_memory_is_what_the_page_says() -> None:
    expected = table()
    assert expected.keys() == ASKED.keys()
    for name, asked in ASKED.items():
        parameters, gradients, states, in_window, more, more_in_bf16 = expected[name]
        for mode, extra in (("no", more), ("bf16", more_in_bf16)):
            training = Counted(mode, **asked)
            if name == "fsdp, FULL_SHARD":  # the page: but for what is in no wrapped part
                extra = training.in_no_part() * (4 if mode == "no" else 2)
            held = parameters, states
            if name == "tensor":  # the page: of what is split; the rest is whole
                whole = 1 + training.not_split() * (PROCESSES - 1)
                held = parameters * whole, states * whole
            if name == "pipeline":  # the page: of stages that are alike
                whole = training.own_part() * PROCESSES
                held = parameters * whole, states * whole
            more_whole = whole if name in ("tensor", "pipeline") else 1
            for window in range(2):
                found = training.batch()
                # autocast keeps no copy of what it does not cast (biases), nor of the first layer's weights
                assert found == (pytest.approx(extra, rel=0.02), pytest.approx(in_window * more_whole)), (
                    name,
                    mode,
                    window,
                )
                assert training.batch() == (pytest.approx(extra, rel=0.02), pytest.approx(gradients * more_whole)), (
                    name,
                    mode,
                    window,
                )
                assert (training.parameters(), training.states()) == pytest.approx(held), (name, mode, window)

    division.forget()


def check_memory_of_other_settings() -> None:
    asked = ASKED["fsdp, FULL_SHARD"]
    together = Counted(sync_each_batch=True, **asked)
    assert together.batch() == together.batch() == (4 * together.in_no_part(), 4 / PROCESSES)
    momentum = Counted(sgd=True, **asked)
    momentum.batch(), momentum.batch()
    assert momentum.states() == 4 / PROCESSES

"""What two processes hold under DeepSpeed, in bytes, against the table of docs/library/choosing_a_strategy.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from memory_checks import Net, table

from accelerate_runtime import Accelerator, DeepSpeedPlugin


class Counted:
    """A training in windows of two batches by an engine, and what its process holds, in bytes for each parameter."""

    def __init__(self, stage: int, mixed_precision: str) -> None:
        config = {
            "train_micro_batch_size_per_gpu": 16,
            "zero_optimization": {"stage3_param_persistence_threshold": 0},
        }
        self.accelerator = Accelerator(
            mixed_precision=mixed_precision,
            gradient_accumulation_steps=2,
            deepspeed_plugin=DeepSpeedPlugin(config, zero_stage=stage),
        )
        model = Net()
        self.number = sum(parameter.numel() for parameter in model.parameters())
        self.largest = max(parameter.numel() for parameter in model.parameters())
        self.model, self.optimizer = self.accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
        self.zero = self.model.engine.optimizer

    def batch(self) -> float:
        """Go on by a batch; returns the gradients held after backward."""
        with self.accelerator.accumulate(self.model):
            self.accelerator.backward(self.model(torch.randn(16, 8)).square().mean())
            held = self.gradients()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return held

    def _parameters(self) -> Iterator[Any]:
        for parameter in self.model.parameters():
            yield from (parameter, getattr(parameter, "ds_tensor", parameter))
        for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups"):
            yield from _tensors(getattr(self.zero, name, []))

    def parameters(self) -> float:
        return self._each(self._parameters())

    def gradients(self) -> float:
        found = [parameter.grad for parameter in self._parameters() if parameter.grad is not None]
        for name in ("averaged_gradients", "all_grad_tensors", "grads_in_partition", "grad_partitions_flat_buffer"):
            found += _tensors(getattr(self.zero, name, None))
        return self._each(found)

    def states(self) -> float:
        base = getattr(self.zero, "optimizer", self.zero)
        return self._each(tensor for tensor in _tensors(dict(base.state)) if tensor.dim())

    def _each(self, tensors: Iterable[torch.Tensor]) -> float:
        """Bytes of the memory behind the tensors, each counted once."""
        held = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
        return sum(held.values()) / self.number


def _tensors(nest: Any) -> Iterator[torch.Tensor]:
    if isinstance(nest, torch.Tensor):
        yield nest
    elif isinstance(nest, (dict, list, tuple)):
        for value in nest.values() if isinstance(nest, dict) else nest:
            yield from _tensors(value)


def check_memory_under_deepspeed_is_what_the_page_says() -> None:
    expected = table("memory of deepspeed")
    for stage in range(4):
        weights, sums, states, low, low_sums = expected[f"deepspeed, zero_stage={stage}"]
        for mode, held, gradients in (("no", weights, sums), ("bf16", low, low_sums)):
            training = Counted(stage, mode)
            largest = training.largest / training.number
            for _ in range(4):
                # of a parameter that two processes share under ZeRO-2, each has the whole gradient
                more = largest * (4 if mode == "no" else 2) if stage == 2 else 0
                assert gradients - 0.01 < training.batch() < gradients + more + 0.01, (stage, mode)
            found = (training.parameters(), training.states())
            assert found == pytest.approx((held, states), rel=0.01), (stage, mode)

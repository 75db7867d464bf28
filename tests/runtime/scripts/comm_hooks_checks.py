"""Gradients that are exchanged in other forms (`comm_hook`) on two processes, against those of plain DDP."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from both import everyone, me
from torch import nn

from accelerate_runtime import Accelerator, DDPCommunicationHookType, DistributedDataParallelKwargs

DRAWN = torch.Generator().manual_seed(8)
INPUTS, TARGETS = torch.randn(24, 32, generator=DRAWN), torch.randn(24, 16, generator=DRAWN)


class Training:
    """Steps of one sample on each process."""

    def __init__(self, steps: int = 1, lr: float = 0.02, **handler: Any) -> None:
        handlers = [DistributedDataParallelKwargs(**handler)] if handler else None
        self.accelerator = Accelerator(gradient_accumulation_steps=steps, kwargs_handlers=handlers)
        torch.manual_seed(0)
        model = nn.Linear(32, 16)
        self.model, self.optimizer = self.accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=lr))
        self.at = me

    def gradient(self, num_items: int | None = None) -> torch.Tensor:
        """That of the next window, on the weight; it is stepped along."""
        gradient = None
        while gradient is None:
            with self.accelerator.accumulate(self.model):
                loss = (self.model(INPUTS[self.at]) - TARGETS[self.at]).square().sum()
                self.accelerator.backward(loss, **({} if num_items is None else {"num_items": num_items}))
                self.at += 2
                self.optimizer.step()
                if self.accelerator.sync_gradients:
                    gradient = self.model.module.weight.grad.clone()
                self.optimizer.zero_grad()
        return gradient


def mine_alone() -> torch.Tensor:
    """The gradient of this process's first sample, without the other's."""
    torch.manual_seed(0)
    model = nn.Linear(32, 16)
    (model(INPUTS[me]) - TARGETS[me]).square().sum().backward()
    return model.weight.grad


def check_gradients_are_cast_for_the_exchange_alone() -> None:
    for name, dtype in ("fp16", torch.float16), ("bf16", torch.bfloat16):
        rounded = [gradient.to(dtype) / 2 for gradient in everyone(mine_alone())]
        for hook in (name, DDPCommunicationHookType(name)):
            found = Training(comm_hook=hook).gradient()
            assert found.dtype == torch.float32
            assert torch.equal(found, (rounded[0] + rounded[1]).float())
        assert not torch.equal(found, Training().gradient())


def check_power_sgd_sends_low_ranks() -> None:
    """One sample's gradient is a product of two vectors: rank 2 is exact for two processes, rank 1 is not."""
    plain = Training(lr=0)
    expected = [plain.gradient() for _ in range(4)]
    for rank in 2, 1:
        options = {"matrix_approximation_rank": rank, "start_powerSGD_iter": 2}
        training = Training(lr=0, comm_hook="power_sgd", comm_state_option=options)
        found = [training.gradient() for _ in range(4)]
        assert torch.equal(found[0], expected[0])  # as they are, in the first steps
        assert (away(found[2], expected[2]) < 1e-3) == (rank == 2)
        both = everyone(found[3].tolist())
        assert both[0] == both[1]


def check_power_sgd_is_wrapped() -> None:
    plain = Training(lr=0)
    expected = [plain.gradient() for _ in range(3)]
    for name in ("fp16", "bf16"):
        options = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 2}
        training = Training(lr=0, comm_hook="power_sgd", comm_wrapper=name, comm_state_option=options)
        found = [training.gradient() for _ in range(3)]
        assert 1e-5 < away(found[0], expected[0]) < 0.01
        assert 1e-5 < away(found[2], expected[2]) < 0.1


def away(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def check_hooks_follow_windows_and_items() -> None:
    for num_items in (None, 3 + me):
        plain, training = Training(steps=3), Training(steps=3, comm_hook="bf16")
        for _ in range(3):
            found, expected = training.gradient(num_items), plain.gradient(num_items)
            torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02 * float(expected.abs().max()))
            assert not torch.equal(found, expected)


def check_hooks_are_refused_where_they_would_be_wrong() -> None:
    power = DistributedDataParallelKwargs(comm_hook="power_sgd")
    with pytest.raises(ValueError, match=r"power_sgd.*fp16.*overflow"):
        Accelerator(mixed_precision="fp16", kwargs_handlers=[power]).prepare(nn.Linear(2, 2))
    training = Training(comm_hook="fp16")
    with (
        pytest.raises(ValueError, match="leave comm_hook out"),
        training.accelerator.join_uneven_inputs([training.model]),
    ):
        pass
    unknown = DistributedDataParallelKwargs(comm_hook="power_sgd", comm_state_option={"rank": 1})
    with pytest.raises(TypeError, match="'rank'"):
        Accelerator(kwargs_handlers=[unknown]).prepare(nn.Linear(2, 2))

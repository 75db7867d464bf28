"""Checks of mixed precision on two processes."""

from __future__ import annotations

from typing import Any

import torch
from both import everyone, me
from torch import nn

from accelerate_runtime import Accelerator, AutocastKwargs, GradScalerKwargs


def nets(count: int) -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(4, 4) for _ in range(count)]


def batch(number: int, rank: int) -> torch.Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(10 * number + rank))


def check_an_overflow_on_one_process_skips_the_step_on_both() -> None:
    half, (plain,) = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2), nets(1)
    model, optimizer = half.prepare(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    scheduler = half.prepare(torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1, gamma=0.5))
    for number in range(4):
        with half.accumulate(model):
            loss = model(batch(number, me)).pow(2).mean()
            half.backward(loss * (float("inf") if number == 0 and me == 1 else 1))  # in a micro-batch not exchanged
            half.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        assert half.optimizer_step_was_skipped == (number in (1, 2))
        assert half.scaler is not None
        seen = everyone((plain.weight.tolist(), half.scaler.state_dict(), scheduler.get_last_lr()))
        if half.sync_gradients:
            assert seen[0] == seen[1]
    assert scheduler.get_last_lr() == [0.025]


def check_optimizers_that_share_a_scale_follow_the_global_batch() -> None:
    """One steps each time, the other each third time, and the scale grows after each update."""
    handlers: list[Any] = [GradScalerKwargs(init_scale=2.0, growth_interval=1), AutocastKwargs(enabled=False)]
    half = Accelerator(mixed_precision="fp16", kwargs_handlers=handlers)
    plain, expected = nets(2), nets(2)
    optimizers = [half.prepare(torch.optim.SGD(model.parameters(), lr=0.1)) for model in plain]
    by_hand = [torch.optim.SGD(model.parameters(), lr=0.1) for model in expected]
    models = half.prepare(*plain)
    for number in range(9):
        for model in models:
            half.backward(model(batch(number, me)).pow(2).mean())
        for model in expected:
            model(torch.cat([batch(number, 0), batch(number, 1)])).pow(2).mean().backward()
        for index in (0, 1) if number % 3 == 2 else (0,):
            half.clip_grad_norm_(models[index].parameters(), 0.5)
            nn.utils.clip_grad_norm_(expected[index].parameters(), 0.5)
            for optimizer in (optimizers[index], by_hand[index]):
                optimizer.step()
                optimizer.zero_grad()
    for ours, theirs in zip(plain, expected, strict=True):
        assert torch.allclose(ours.weight, theirs.weight, atol=1e-6)


def check_fp8_trains_in_step() -> None:
    try:
        import torchao.float8  # noqa: F401
    except ImportError:
        return
    eighth = Accelerator(mixed_precision="fp8")
    torch.manual_seed(me)
    plain = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    model, optimizer = eighth.prepare(plain, optimizer)
    before = plain[2].weight.detach().clone()
    losses = []
    for _ in range(10):
        x = torch.randn(64, 16, generator=torch.Generator().manual_seed(me))  # of its own, in each step the same
        loss = (model(x) - x[:, :1]).pow(2).mean()
        eighth.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    weights = everyone(plain[2].weight.tolist())
    assert weights[0] == weights[1] != before.tolist()
    assert losses == sorted(losses, reverse=True)

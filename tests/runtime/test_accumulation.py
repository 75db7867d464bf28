"""Gradient accumulation: the same numbers as a hand-written modulo, wherever zero_grad stands."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from accelerate_runtime import Accelerator, GradientAccumulationPlugin

STEPS = 3


def data(count: int = 14) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(count, 4, generator=generator), torch.randn(count, 1, generator=generator))


def net() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 1)


def by_hand(epochs: int = 2) -> list[torch.Tensor]:
    """A window of STEPS micro-batches; the last one of an epoch ends with it."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(data(), batch_size=2)
    for _ in range(epochs):
        for number, (x, y) in enumerate(loader, 1):
            ((model(x) - y).pow(2).mean() / STEPS).backward()
            if number % STEPS == 0 or number == len(loader):
                optimizer.step()
                optimizer.zero_grad()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("place", ["end", "top", "before the with", "after backward's step only"])
def test_zero_grad_may_stand_anywhere(place: str) -> None:
    accelerator = Accelerator(gradient_accumulation_steps=STEPS)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data(), batch_size=2))
    for _ in range(2):
        for x, y in loader:
            if place == "before the with":
                optimizer.zero_grad()
            with accelerator.accumulate(model):
                if place == "top":
                    optimizer.zero_grad()
                accelerator.backward((model(x) - y).pow(2).mean())
                optimizer.step()
                if place == "end" or (place == "after backward's step only" and accelerator.sync_gradients):
                    optimizer.zero_grad()
    for ours, expected in zip(model.parameters(), by_hand(), strict=True):
        assert torch.equal(ours, expected)


def test_two_optimizers_of_one_loop_each_keep_their_windows() -> None:
    """The order of a GAN: zero, backward and step of one, then of the other."""

    def train(prepared: bool) -> list[torch.Tensor]:
        nets = [net(), nn.Linear(4, 1)]
        optimizers: list[Any] = [torch.optim.SGD(one.parameters(), lr=0.1) for one in nets]
        accelerator = Accelerator(gradient_accumulation_steps=2)
        if prepared:
            optimizers = list(accelerator.prepare(*optimizers))
        for number, (x, y) in enumerate(DataLoader(data(12), batch_size=2)):
            with accelerator.accumulate():
                for model, optimizer in zip(nets, optimizers, strict=True):
                    loss = (model(x) - y).pow(2).mean()
                    if prepared:
                        optimizer.zero_grad()
                        accelerator.backward(loss)
                        optimizer.step()
                        continue
                    if number % 2 == 0:
                        optimizer.zero_grad()
                    (loss / 2).backward()
                    if number % 2 == 1:
                        optimizer.step()
        return [parameter.detach() for model in nets for parameter in model.parameters()]

    torch.manual_seed(0)
    expected = train(prepared=False)
    torch.manual_seed(0)
    assert all(torch.equal(a, b) for a, b in zip(train(prepared=True), expected, strict=True))


def test_without_accumulation_zero_grad_always_acts() -> None:
    accelerator, model = Accelerator(), net()
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    accelerator.backward(model(torch.ones(4)).sum())
    optimizer.zero_grad()
    assert model.weight.grad is None


def test_a_modulo_written_by_hand_keeps_working() -> None:
    """The script asks for steps but never calls accumulate(): step and zero_grad act at once."""
    accelerator, model = Accelerator(gradient_accumulation_steps=4), net()
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    before = model.weight.detach().clone()
    accelerator.backward(model(torch.ones(4)).sum())
    optimizer.step()
    optimizer.zero_grad()
    assert torch.allclose(model.weight, before - 0.1 / 4)
    assert model.weight.grad is None


def test_breaking_out_of_another_loader_disturbs_nothing() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=4)
    train, other = accelerator.prepare(DataLoader(data(10), batch_size=2), DataLoader(data(2), batch_size=2))
    synced = []
    for _ in train:
        with accelerator.accumulate():
            synced.append(accelerator.sync_gradients)
        for _ in other:
            assert accelerator.gradient_state.end_of_dataloader
            break
        assert accelerator.gradient_state.active_dataloader is train
    assert synced == [False, False, False, True, True]  # the window, and the epoch's end
    assert not accelerator.gradient_state.in_dataloader


def test_a_stream_ends_its_window_too() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            yield from range(5)

    accelerator = Accelerator(gradient_accumulation_steps=2)
    synced = []
    for _ in accelerator.prepare(DataLoader(Stream(), batch_size=1)):
        with accelerator.accumulate():
            synced.append(accelerator.sync_gradients)
    assert synced == [False, True, False, True, True]


def test_the_loaders_end_may_be_ignored() -> None:
    plugin = GradientAccumulationPlugin(num_steps=2, sync_with_dataloader=False)
    accelerator = Accelerator(gradient_accumulation_plugin=plugin)
    synced = []
    for _ in range(2):
        for _ in accelerator.prepare(DataLoader(data(3), batch_size=1)):
            with accelerator.accumulate():
                synced.append(accelerator.sync_gradients)
    assert synced == [False, True, False, True, False, True]


def test_clipping_waits_for_the_window() -> None:
    accelerator, model = Accelerator(gradient_accumulation_steps=2), net()
    for window_ends in (False, True):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.ones(4) * 100).sum())
            norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
            assert norm > 1
            clipped = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
            assert (clipped <= 1.0) == window_ends


def test_steps_may_be_changed_and_are_checked() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=2)
    accelerator.gradient_accumulation_steps = 5
    assert accelerator.gradient_state.num_steps == 5
    for wrong in (0, -1, 1.5, "2", True):
        with pytest.raises(ValueError, match="whole number, 1 or more"):
            accelerator.gradient_accumulation_steps = wrong  # type: ignore[assignment]


def test_the_environment_wins_over_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    assert Accelerator(gradient_accumulation_steps=2).gradient_accumulation_steps == 4


@pytest.mark.parametrize("text", ["0", "-3", "two"])
def test_what_the_environment_says_must_be_a_number_of_steps(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", text)
    with pytest.raises(ValueError, match=f"ACCELERATE_GRADIENT_ACCUMULATION_STEPS='{text}'"):
        Accelerator()


def test_backward_takes_what_a_tensors_backward_takes() -> None:
    accelerator, x = Accelerator(), torch.ones(2, requires_grad=True)
    y = x * 3
    accelerator.backward(y, torch.tensor([1.0, 2.0]), retain_graph=True)
    accelerator.backward(y, gradient=torch.tensor([1.0, 2.0]))
    assert x.grad is not None
    assert x.grad.tolist() == [6, 12]

"""backward(loss, num_items=n): gradients of the sum of the losses over the sum of the items, whatever the sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from accelerate_runtime import Accelerator, AutocastKwargs, GradScalerKwargs

STEPS = 3
LENGTHS = [5, 1, 9, 2, 2, 7, 3, 4, 1, 6, 8]  # the last window holds fewer micro-batches, of any size


class Texts(Dataset[torch.Tensor]):
    """Each item is a text: rows of four numbers, its tokens."""

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(LENGTHS[index], 4, generator=torch.Generator().manual_seed(index))


def net(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(4, 1)


def loss_of(model: Callable[..., Any], tokens: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = (model(tokens) - tokens.sum(1, keepdim=True)).pow(2).sum()
    return loss


def by_whole_windows(clip: float | None = None) -> torch.Tensor:
    """One batch a window: no accumulation, no counting."""
    model, texts = net(), [Texts()[index] for index in range(len(LENGTHS))]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for start in range(0, len(texts), STEPS):
        tokens = torch.cat(texts[start : start + STEPS])
        (loss_of(model, tokens) / len(tokens)).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
    return model.weight.detach()


COUNTS: list[Callable[[int], Any]] = [int, float, torch.tensor, lambda n: torch.tensor([n], dtype=torch.int32)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("top", [True, False])
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("mode", ["no", "fp16"])
def test_windows_of_any_sizes(count: Callable[[int], Any], top: bool, clip: float | None, mode: str) -> None:
    handlers = [AutocastKwargs(enabled=False), GradScalerKwargs(init_scale=64.0, growth_interval=1)]
    accelerator = Accelerator(mixed_precision=mode, gradient_accumulation_steps=STEPS, kwargs_handlers=handlers)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Texts(), batch_size=None))
    for tokens in loader:
        with accelerator.accumulate(model):
            if top:
                optimizer.zero_grad()
            accelerator.backward(loss_of(model, tokens), num_items=count(len(tokens)))
            if clip is not None:
                accelerator.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if not top:
                optimizer.zero_grad()
    assert torch.allclose(model.weight, by_whole_windows(clip), rtol=1e-6, atol=1e-6)


def test_a_modulo_written_by_hand_and_clipping_of_ones_own() -> None:
    accelerator, model = Accelerator(), net()
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    for number, tokens in enumerate(DataLoader(Texts(), batch_size=None), 1):
        accelerator.backward(loss_of(model, tokens), num_items=len(tokens))
        if number % STEPS == 0 or number == len(LENGTHS):
            accelerator.unscale_gradients()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    assert torch.allclose(model.weight, by_whole_windows(0.5), atol=1e-6)


@pytest.mark.parametrize("mode", ["no", "fp16"])
def test_a_window_goes_on_where_a_state_was_saved(mode: str, tmp_path: Path) -> None:
    def start() -> tuple[Accelerator, Any, Any]:
        handlers = [AutocastKwargs(enabled=False), GradScalerKwargs(init_scale=64.0)]
        accelerator = Accelerator(mixed_precision=mode, gradient_accumulation_steps=STEPS, kwargs_handlers=handlers)
        model = net()
        return accelerator, *accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def go_on(accelerator: Accelerator, model: Any, optimizer: Any, indices: range) -> None:
        for index in indices:
            tokens = Texts()[index]
            with accelerator.accumulate(model):
                accelerator.backward(loss_of(model, tokens), num_items=torch.tensor(len(tokens)))
                optimizer.step()
                optimizer.zero_grad()

    first = start()
    go_on(*first, range(5))  # one window and two thirds
    first[0].save_state(tmp_path / "state")
    second = start()
    second[0].load_state(tmp_path / "state")
    go_on(*second, range(5, 6))
    go_on(*first, range(5, 6))
    assert torch.equal(second[1].weight, first[1].weight)


def test_two_optimizers_count_what_reached_them() -> None:
    """Within one window each has another number of items; a third optimizer gets nothing."""
    accelerator, models = Accelerator(gradient_accumulation_steps=2), [net(0), net(1), net(2)]
    optimizers = accelerator.prepare(*(torch.optim.SGD(model.parameters(), lr=1.0) for model in models))
    before = [model.weight.detach().clone() for model in models]
    x = torch.ones(1, 4)
    for numbers in ((2, 3), (4, 1)):
        with accelerator.accumulate():
            for model, number in zip(models, numbers, strict=False):
                accelerator.backward(model(x).sum() * number, num_items=number * 2)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    for model, old, change in zip(models, before, (0.5, 0.5, 0.0), strict=True):
        assert torch.allclose(old - model.weight, torch.full((1, 4), change))


def test_a_window_without_items_moves_nothing() -> None:
    accelerator, model = Accelerator(), net()
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=1.0))
    before = model.weight.detach().clone()
    for nothing in (0, torch.tensor(0)):
        accelerator.backward(model(torch.zeros(0, 4)).sum(), num_items=nothing)
        optimizer.step()
    assert torch.equal(model.weight, before)


def test_sparse_gradients() -> None:
    accelerator, table = Accelerator(), nn.Embedding(4, 2, sparse=True)
    optimizer = accelerator.prepare(torch.optim.SGD(table.parameters(), lr=1.0))
    before = table.weight.detach().clone()
    accelerator.backward(table(torch.tensor([1, 1])).sum(), num_items=torch.tensor(4))
    optimizer.step()
    assert torch.allclose(before - table.weight, torch.tensor([[0.0, 0], [0.5, 0.5], [0, 0], [0, 0]]))


@pytest.mark.parametrize("first", ["counted", "plain"])
def test_sums_and_means_in_one_window_are_refused(first: str) -> None:
    accelerator, model = Accelerator(gradient_accumulation_steps=2), net()
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=1.0))

    def micro_batch(**kwargs: Any) -> None:
        with accelerator.accumulate():
            accelerator.backward(model(torch.ones(4)).sum(), **kwargs)
            optimizer.step()

    counted: dict[str, Any] = {"num_items": 2}
    micro_batch(**(counted if first == "counted" else {}))
    with pytest.raises(ValueError, match="with num_items and without it"):
        micro_batch(**({} if first == "counted" else counted))


def test_sums_and_means_may_follow_each_other() -> None:
    accelerator, model = Accelerator(), net()
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=1.0))
    for kwargs in ({}, {"num_items": 2}, {}, {"num_items": 2}):
        optimizer.zero_grad()
        before = model.weight.detach().clone()
        accelerator.backward(model(torch.ones(1, 4)).sum(), **kwargs)
        optimizer.step()
        assert torch.allclose(before - model.weight, torch.tensor(0.5 if kwargs else 1.0))


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_batch_may_be_left(set_to_none: bool) -> None:
    """Gradients that were cleared count no longer, nor do losses without items that came before."""
    accelerator, model = Accelerator(), net()
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=1.0))
    accelerator.backward(model(torch.ones(1, 4)).sum())
    optimizer.zero_grad(set_to_none)
    accelerator.backward(model(torch.ones(1, 4)).sum(), num_items=8)
    optimizer.zero_grad(set_to_none)
    before = model.weight.detach().clone()
    accelerator.backward(model(torch.ones(1, 4)).sum(), num_items=2)
    optimizer.step()
    assert torch.allclose(before - model.weight, torch.tensor(0.5))


def test_after_clipping_nothing_is_added() -> None:
    accelerator, model = Accelerator(), net()
    accelerator.prepare(torch.optim.SGD(model.parameters(), lr=1.0))
    accelerator.backward(model(torch.ones(4)).sum(), num_items=2)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    with pytest.raises(ValueError, match="after the gradients were clipped"):
        accelerator.backward(model(torch.ones(4)).sum(), num_items=2)


def test_somebody_must_divide() -> None:
    accelerator, model = Accelerator(), net()
    with pytest.raises(ValueError, match=r"prepare\(\) the optimizer first"):
        accelerator.backward(model(torch.ones(4)).sum(), num_items=2)


def test_a_closure_uses_its_gradients_at_once() -> None:
    accelerator, model = Accelerator(), net()
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=1.0))

    def closure() -> float:
        accelerator.backward(model(torch.ones(4)).sum(), num_items=2)
        return 0.0

    with pytest.raises(ValueError, match="in a closure"):
        optimizer.step(closure)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [(-1, ValueError), (float("nan"), ValueError), (True, TypeError), ("3", TypeError), (torch.ones(2), ValueError)],
)
def test_numbers_are_checked(wrong: Any, error: type[Exception]) -> None:
    accelerator, model = Accelerator(), net()
    accelerator.prepare(torch.optim.SGD(model.parameters(), lr=1.0))
    with pytest.raises(error, match=r"backward\(num_items="):
        accelerator.backward(model(torch.ones(4)).sum(), num_items=wrong)

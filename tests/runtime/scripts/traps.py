"""Traps of training over several processes, each at any number of processes.

Run at one process by test_traps.py, at two by traps_checks.py. Resuming has its own tests (test_resuming.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Sampler, TensorDataset

from accelerate_runtime import Accelerator, DataLoaderConfiguration
from accelerate_runtime.utils import gather_object


def numbers(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(float(count)))


def seen_by_all(loader: Any) -> list[float]:
    return sorted(gather_object([x for (batch,) in loader for x in batch.tolist()]))


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(2, 1)


def split_batches_in_the_constructor_is_honoured(accelerator: Accelerator) -> None:
    splitting = Accelerator(split_batches=True)
    assert splitting.split_batches
    for (batch,) in splitting.prepare(DataLoader(numbers(8), batch_size=4)):
        assert len(batch) == 4 // accelerator.num_processes


def a_loader_that_is_sharded_is_not_sharded_again(accelerator: Accelerator) -> None:
    class Own(Sampler[int]):
        """Deals between processes, and is no DistributedSampler."""

        num_replicas, rank = accelerator.num_processes, accelerator.process_index

        def __iter__(self) -> Iterator[int]:
            yield from range(self.rank, 12, self.num_replicas)

        def __len__(self) -> int:
            return 12 // self.num_replicas

    data = numbers(12)
    place = {"num_replicas": accelerator.num_processes, "rank": accelerator.process_index}
    for sampler in (DistributedSampler(data, **place), Own()):
        loader = accelerator.prepare(DataLoader(data, batch_size=2, sampler=sampler))
        assert len(loader) == 6 // accelerator.num_processes
        assert seen_by_all(loader) == list(range(12))


def preparing_again_changes_nothing(accelerator: Accelerator) -> None:
    model, data = linear(), DataLoader(numbers(8), batch_size=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = accelerator.prepare(model, optimizer, data)
    for again in (accelerator.prepare(*first), accelerator.prepare(model, optimizer, data)):
        assert all(new is old for new, old in zip(again, first, strict=True))
    assert seen_by_all(first[2]) == list(range(8))


def what_cannot_be_prepared_is_refused(accelerator: Accelerator) -> None:
    class Wrapped:
        """An optimizer inside a class of its own."""

        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)

        def zero_grad(self) -> None: ...

        def step(self) -> None: ...

    things: list[Any] = [(x for x in [1]), iter([1]), [linear()], {"model": linear()}, Wrapped()]
    for thing in things:
        with pytest.raises(TypeError, match=r"argument 1 of prepare\(\) cannot be prepared"):
            accelerator.prepare(thing)


def a_frozen_model_is_prepared(accelerator: Accelerator) -> None:
    frozen = linear().requires_grad_(False)
    assert accelerator.prepare(frozen)(torch.ones(1, 2)).shape == (1, 1)


def a_metric_scheduler_steps_once_a_call(accelerator: Accelerator) -> None:
    optimizer = torch.optim.SGD(linear().parameters(), lr=1.0)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    scheduler = accelerator.prepare(plateau)
    for _ in range(3):
        scheduler.step(1.0)
    assert plateau.num_bad_epochs == 0
    assert optimizer.param_groups[0]["lr"] == 0.5  # after the second bad epoch of two


def uneven_inputs_are_joined(accelerator: Accelerator) -> None:
    count = accelerator.num_processes
    uneven = Accelerator(dataloader_config=DataLoaderConfiguration(even_batches=False))
    model, loader = uneven.prepare(nn.Linear(1, 1), DataLoader(numbers(3), batch_size=1))
    seen = 0
    with uneven.join_uneven_inputs([model]):
        for (x,) in loader:
            uneven.backward(model(x[:, None]).sum())
            seen += 1
    assert seen == (3 if count == 1 else [2, 1][accelerator.process_index])


def leaving_one_loop_disturbs_no_other(accelerator: Accelerator) -> None:
    many = Accelerator(gradient_accumulation_steps=2)
    loader, other = (many.prepare(DataLoader(numbers(5 * 4 - 1), batch_size=4 // many.num_processes)) for _ in range(2))
    ends, rows = [], []
    for (batch,) in loader:
        for _ in other:
            break
        with many.accumulate():
            ends.append(many.sync_gradients)
        rows += many.gather_for_metrics(batch).tolist()
    assert ends == [False, True, False, True, True]  # the last window is closed
    assert rows == list(range(19))  # and its padding left out


def zero_grad_may_stand_at_the_top(accelerator: Accelerator) -> None:
    torch.manual_seed(1)
    inputs = torch.randn(8, 2)
    weights = []
    for top in (True, False):
        many = Accelerator(gradient_accumulation_steps=2)
        model = linear()
        size = 2 // many.num_processes
        model, optimizer, loader = many.prepare(
            model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(TensorDataset(inputs), batch_size=size)
        )
        for (x,) in loader:
            with many.accumulate(model):
                if top:
                    optimizer.zero_grad()
                many.backward(model(x).pow(2).mean())
                optimizer.step()
                if not top:
                    optimizer.zero_grad()
        weights.append(many.unwrap_model(model).weight)
    assert torch.equal(*weights)
    alone = linear()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for window in inputs.split(4):
        optimizer.zero_grad()
        alone(window).pow(2).mean().backward()
        optimizer.step()
    assert torch.allclose(weights[0], alone.weight, atol=1e-6)


def attributes_and_methods_are_there_on_any_number_of_processes(accelerator: Accelerator) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.config = linear(), {"size": 2}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)  # type: ignore[no-any-return]

        def loss(self, x: torch.Tensor) -> torch.Tensor:
            return self(x).sum()  # type: ignore[no-any-return]

    raw = Model()
    model: Any = accelerator.prepare(raw)
    assert model.config == {"size": 2}
    assert accelerator.unwrap_model(model) is raw
    accelerator.backward(model.loss(torch.full((1, 2), float(accelerator.process_index))))
    mean = (accelerator.num_processes - 1) / 2
    assert raw.inner.weight.grad is not None
    assert raw.inner.weight.grad.tolist() == [[mean, mean]]


def a_device_is_compared_by_its_type(accelerator: Accelerator) -> None:
    """torch.device equals no string (torch's choice; it can't be subclassed): compare `.type`."""
    assert accelerator.device.type == "cpu"
    assert accelerator.device == torch.device("cpu")


def a_gradient_may_be_passed_by_position(accelerator: Accelerator) -> None:
    model = accelerator.prepare(linear())
    output = model(torch.ones(2, 2))
    accelerator.backward(output, torch.tensor([[1.0], [2.0]]))
    assert accelerator.unwrap_model(model).weight.grad.tolist() == [[3.0, 3.0]]

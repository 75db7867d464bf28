"""Checks of join_uneven_inputs and of gradients exchanged late, on two processes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from both import accelerator, everyone, me
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from accelerate_runtime import Accelerator, DataLoaderConfiguration, DistributedDataParallelKwargs

torch.manual_seed(1)
INPUTS, TARGETS = torch.randn(40, 4), torch.randn(40, 1)


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 1)


def same_everywhere(*values: Any) -> bool:
    mine = [[x.tolist() for x in v] if isinstance(v, list) else v for v in values]
    left, right = everyone(mine)
    return bool(left == right)


def moments(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [value for state in optimizer.state.values() for value in state.values()]


def uneven(samples: int, steps: int = 1) -> tuple[Accelerator, nn.Module, Any, Any, Any]:
    ours = Accelerator(gradient_accumulation_steps=steps, dataloader_config=DataLoaderConfiguration(even_batches=False))
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = TensorDataset(INPUTS[:samples], TARGETS[:samples])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    return ours, *ours.prepare(model, optimizer, DataLoader(data, batch_size=4), scheduler)


def alone(windows: list[slice]) -> nn.Linear:
    """Trained by one process on the global batch of each window."""
    torch.manual_seed(0)
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for window in windows:
        optimizer.zero_grad()
        (model(INPUTS[window]) - TARGETS[window]).pow(2).mean().backward()
        optimizer.step()
        for _ in range(2):  # once a process
            scheduler.step()
    return model


def check_uneven_batches_train_as_one_process_and_stay_in_step() -> None:
    ours, model, optimizer, loader, scheduler = uneven(20)  # batches 0, 2, 4 here, 1, 3 there
    wanted = alone([slice(0, 8), slice(8, 16), slice(16, 20)] * 2)
    for _ in range(2):
        with ours.join_uneven_inputs([model]):
            seen = 0
            for x, y in loader:
                optimizer.zero_grad()
                ours.backward((model(x) - y).pow(2).mean())
                optimizer.step()
                scheduler.step()
                seen += 1
        assert seen == [3, 2][me]
        assert same_everywhere(list(model.parameters()), moments(optimizer), scheduler.state_dict())
        assert optimizer.param_groups[0]["lr"] == scheduler.get_last_lr()[0]
    assert len(optimizer.state) == 2
    for mine, theirs in zip(model.parameters(), wanted.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)
    # afterwards gradients are averaged over all again, and a process may call the model alone
    if me == 0:
        with torch.no_grad():
            model(INPUTS[:1])
    optimizer.zero_grad()
    model(INPUTS[me : me + 1]).sum().backward()
    assert torch.allclose(model.module.weight.grad, INPUTS[:2].mean(0, keepdim=True))


def check_accumulation_windows_end_together() -> None:
    for samples, windows, counts in (
        (20, [slice(0, 16), slice(16, 20)], [3, 2]),
        (28, [slice(0, 16), slice(16, 24), slice(24, 28)], [4, 3]),
    ):
        ours, model, optimizer, loader, scheduler = uneven(samples, steps=2)
        ends = []
        with ours.join_uneven_inputs([model]):
            for x, y in loader:
                with ours.accumulate(model):
                    ours.backward(
                        (model(x) - y).pow(2).mean() * (1 if len(ends) < 2 else 2)
                    )  # short windows count fully
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                    ends.append(ours.sync_gradients)
        assert len(ends) == counts[me]
        assert ours.gradient_state.step == 0
        assert same_everywhere(list(model.parameters()), moments(optimizer), scheduler.state_dict())
        for mine, theirs in zip(model.parameters(), alone(windows).parameters(), strict=True):
            assert torch.allclose(mine, theirs, atol=1e-5), (samples, mine, theirs)


def check_windows_of_a_stream_that_end_nobody_knows_where_are_refused() -> None:
    class Stream(IterableDataset[torch.Tensor]):
        def __iter__(self) -> Any:
            yield from INPUTS[:9]

    ours = Accelerator(gradient_accumulation_steps=2, dataloader_config=DataLoaderConfiguration(even_batches=False))
    model, loader = ours.prepare(nn.Linear(4, 1), DataLoader(Stream(), batch_size=1))

    def train(even: bool | None) -> int:
        seen = 0
        with ours.join_uneven_inputs([model], even_batches=even):
            for x in loader:
                with ours.accumulate(model):
                    ours.backward(model(x).sum())
                    seen += 1
        return seen

    with pytest.raises(ValueError, match="even_batches=True"):
        train(None)
    assert train(True) == 5


def check_models_with_buffers_join() -> None:
    ours = Accelerator(dataloader_config=DataLoaderConfiguration(even_batches=False))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(TensorDataset(INPUTS[:36], TARGETS[:36]), batch_size=4)
    model, optimizer, loader = ours.prepare(model, optimizer, loader)
    with ours.join_uneven_inputs([model]):
        for x, y in loader:
            with torch.no_grad():
                model(x)  # nobody has to wait for gradients of this one
            ours.backward((model(x) - y).pow(2).mean())
            optimizer.step()
            optimizer.zero_grad()
    assert same_everywhere(list(model.state_dict().values()), moments(optimizer))


def check_what_cannot_be_joined_is_refused() -> None:
    models = [accelerator.prepare(linear()) for _ in range(2)]
    with pytest.raises(ValueError, match="one model"), accelerator.join_uneven_inputs(models):
        pass
    with pytest.raises(TypeError, match="Linear exchanges nothing"), accelerator.join_uneven_inputs([nn.Linear(1, 1)]):
        pass
    model = models[0]

    def call_twice() -> None:
        with accelerator.join_uneven_inputs([model]):
            first = model(INPUTS[:1]).sum()
            first.backward()
            model(INPUTS[:1])
            model(INPUTS[:1])

    with pytest.raises(RuntimeError, match="called again before backward"):
        call_twice()
    for _ in range(2):
        model(INPUTS[:1])  # outside it may be


def check_even_batches_are_overridden_inside() -> None:
    data = TensorDataset(INPUTS[:5])
    model = accelerator.prepare(nn.Linear(4, 1))
    loader = accelerator.prepare(DataLoader(data, batch_size=1))
    with accelerator.join_uneven_inputs([model], even_batches=False):
        assert [len(loader), sum(1 for _ in loader)] == [3 - me] * 2
    assert [len(loader), sum(1 for _ in loader)] == [3, 3]


def check_gradients_may_be_exchanged_in_a_later_backward() -> None:
    model = accelerator.prepare(linear())
    losses = []
    with accelerator.no_sync(model):
        for turn in range(3):
            losses.append(model(INPUTS[[2 * turn + me]]).sum())
    for loss in losses[:2]:
        with accelerator.no_sync(model):
            accelerator.backward(loss)
    assert torch.allclose(model.module.weight.grad, INPUTS[me : 3 + me : 2].sum(0, keepdim=True))
    with Accelerator.trigger_sync_in_backward(model):
        accelerator.backward(losses[2])
    assert torch.allclose(model.module.weight.grad, INPUTS[:6].sum(0, keepdim=True) / 2)
    searching = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
    with (
        pytest.raises(ValueError, match="find_unused_parameters"),
        Accelerator.trigger_sync_in_backward(searching.prepare(linear())),
    ):
        pass
    with Accelerator.trigger_sync_in_backward(nn.Linear(1, 1)):
        pass


def check_a_flag_of_one_process_is_seen_by_all() -> None:
    assert not accelerator.check_trigger()
    if me == 1:
        accelerator.set_trigger()
    assert accelerator.check_trigger() is True
    assert accelerator.check_trigger() is False

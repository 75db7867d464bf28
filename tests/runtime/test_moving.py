"""What is prepared after a checkpoint was resumed, or around what a script keeps: parameters, state, rates."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from accelerate_runtime import Accelerator
from accelerate_runtime.optimizer import move_state

META = torch.device("meta")


@pytest.fixture
def another_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device that any machine has; to get there, parameters must be asked to stay the objects they are."""
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "meta")
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


def resumed(**options: Any) -> tuple[nn.Linear, torch.optim.Adam]:
    """A model on the CPU, and an optimizer into which a checkpoint was loaded there."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, **options)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
    return model, optimizer


def devices(optimizer: torch.optim.Optimizer) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for state in optimizer.state.values():
        for name, value in state.items():
            found.setdefault(name, set()).add(value.device.type)
    return found


FOLLOWED = {"step": {"cpu"}, "exp_avg": {"meta"}, "exp_avg_sq": {"meta"}}


@pytest.mark.usefixtures("another_device")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("calls", [1, 2])
def test_state_loaded_before_prepare_follows_its_parameters(order: tuple[int, ...], calls: int) -> None:
    both = resumed()
    model, optimizer = both
    parameters, groups, group = list(model.parameters()), optimizer.param_groups, optimizer.param_groups[0]
    accelerator = Accelerator()
    things = [both[index] for index in order]
    if calls == 1:
        accelerator.prepare(*things)
    else:
        for thing in things:
            accelerator.prepare(thing)
    assert all(parameter.device == META for parameter in model.parameters())
    assert devices(optimizer) == FOLLOWED
    assert all(now is before for now, before in zip(model.parameters(), parameters, strict=True))
    assert all(now is before for now, before in zip(group["params"], parameters, strict=True))
    assert optimizer.param_groups is groups
    assert groups[0] is group


def test_counters_follow_where_torch_wants_them_on_the_device() -> None:
    for option in ("capturable", "fused"):
        parameter = nn.Parameter(torch.zeros(1, device=META))
        optimizer = torch.optim.Adam([parameter])
        optimizer.param_groups[0][option] = True
        optimizer.state[parameter] = {"step": torch.ones(())}
        move_state(optimizer)
        assert devices(optimizer) == {"step": {"meta"}}


def test_nested_state_follows_and_other_state_stays() -> None:
    parameter, other = nn.Parameter(torch.zeros(1, device=META)), nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([{"params": [parameter]}, {"params": [other]}])
    kept = torch.ones(1)
    state = {"old_dirs": [torch.ones(1), torch.ones(1)], "n_iter": 3, "nested": {"t": torch.ones(1)}, "none": None}
    optimizer.state[parameter], optimizer.state[other] = state, {"momentum_buffer": kept}
    move_state(optimizer)
    assert [tensor.device for tensor in optimizer.state[parameter]["old_dirs"]] == [META, META]
    assert optimizer.state[parameter]["nested"]["t"].device == META
    assert optimizer.state[parameter]["n_iter"] == 3
    assert optimizer.state[other]["momentum_buffer"] is kept


def test_parameters_stay_the_objects_that_the_optimizer_has() -> None:
    model, optimizer = resumed()
    before = {name: id(parameter) for name, parameter in model.named_parameters()}
    states = [id(optimizer.state[parameter]["exp_avg"]) for parameter in model.parameters()]
    for mode in ("no", "bf16"):
        prepared = Accelerator(mixed_precision=mode).prepare(model)
        assert {name: id(parameter) for name, parameter in prepared.named_parameters()} == before
    assert [id(parameter) for parameter in optimizer.param_groups[0]["params"]] == list(before.values())
    Accelerator().prepare(optimizer)
    assert [id(optimizer.state[parameter]["exp_avg"]) for parameter in model.parameters()] == states


@pytest.mark.parametrize("first", [True, False])
def test_a_scheduler_that_is_not_prepared_sets_the_prepared_optimizers_rate(first: bool) -> None:
    accelerator = Accelerator()
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    if first:
        scheduler, plateau = StepLR(optimizer, 1, gamma=0.5), ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        model, prepared = accelerator.prepare(model, optimizer)
    else:
        model, prepared = accelerator.prepare(model, optimizer)
        scheduler, plateau = StepLR(prepared, 1, gamma=0.5), ReduceLROnPlateau(prepared, factor=0.5, patience=0)
    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "scheduler.step() before optimizer.step()"
        for _ in range(3):
            accelerator.backward(model(torch.ones(1)).sum())
            prepared.step()
            prepared.zero_grad()
            scheduler.step()
            plateau.step(1.0)
            rates.append(prepared.param_groups[0]["lr"])
    assert rates == [0.5, 0.125, 0.03125]  # the first metric is the best so far
    assert optimizer.param_groups[0]["lr"] == 0.03125
    state = scheduler.state_dict()
    scheduler.load_state_dict(state)
    assert scheduler.get_last_lr() == [0.0625]

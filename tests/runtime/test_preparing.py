"""What can be prepared, how often, in what order; and what prepare() says of the rest."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator, DataLoaderConfiguration


class NoamOpt:
    """An optimizer inside a class of its own, as in many transformer tutorials."""

    def __init__(self) -> None:
        self.optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)

    def step(self) -> None:
        self.optimizer.step()

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class OwnScheduler:
    """No LRScheduler, but with all that one needs."""

    steps = 0

    def step(self) -> None:
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


def objects() -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any], Any]:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.zeros(4, 1)), batch_size=2)
    return model, optimizer, loader, torch.optim.lr_scheduler.StepLR(optimizer, 1)


def test_results_come_in_the_order_of_the_arguments() -> None:
    model, optimizer, loader, scheduler = objects()
    got = Accelerator().prepare(scheduler, loader, optimizer, model)
    assert got[0].scheduler is scheduler
    assert got[1].base is loader
    assert got[2].optimizer is optimizer
    assert got[3] is model
    assert isinstance(got[1], DataLoader)
    assert isinstance(got[2], torch.optim.Optimizer)


def test_one_object_comes_back_bare() -> None:
    model, *_ = objects()
    assert Accelerator().prepare(model) is model


def test_preparing_again_gives_the_same_object() -> None:
    accelerator, things = Accelerator(), objects()
    prepared = accelerator.prepare(*things)
    assert all(again is first for again, first in zip(accelerator.prepare(*things), prepared, strict=True))
    assert all(again is first for again, first in zip(accelerator.prepare(*prepared), prepared, strict=True))


def test_a_scheduler_prepared_before_its_optimizer_follows_it() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model, optimizer, _loader, scheduler = objects()
    scheduler = accelerator.prepare(scheduler)
    optimizer, model = accelerator.prepare(optimizer, model)
    rates = []
    for _ in range(4):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.ones(1)).sum())
            optimizer.step()
            scheduler.step()
            rates.append(scheduler.get_last_lr()[0])
    assert rates == pytest.approx([0.1, 0.01, 0.01, 0.001])


def test_a_scheduler_of_ones_own_make() -> None:
    scheduler = Accelerator().prepare(OwnScheduler())
    scheduler.step()
    assert scheduler.state_dict() == {"steps": 1}


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        ([nn.Linear(1, 1)], r"prepare\(\*objects\)"),
        ({"a": nn.Linear(1, 1)}, "values one by one"),
        ((x for x in [1]), "Prepare the loader behind it"),
        (iter([1]), "Prepare the loader behind it"),
        (range(3), "Build a DataLoader"),
        (NoamOpt(), "Prepare the one inside it"),
        (nn.Linear, "the class Linear itself"),
        (torch.zeros(1), r"\.to\(accelerator\.device\)"),
        (TensorDataset(torch.zeros(1)), "DataLoader over it"),
        (3.5, "it is a float"),
    ],
)
def test_other_things_are_refused_with_advice(thing: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told) as error:
        Accelerator().prepare(nn.Linear(1, 1), thing)
    assert "argument 2 of prepare()" in str(error.value)


def test_a_refused_argument_leaves_the_others_unprepared() -> None:
    accelerator, (model, optimizer, *_) = Accelerator(), objects()
    with pytest.raises(TypeError):
        accelerator.prepare(model, optimizer, [])
    assert accelerator._prepared.find(optimizer) is None


def test_none_stays_none() -> None:
    """A scheduler that a script may do without."""
    model, scheduler = Accelerator().prepare(nn.Linear(1, 1), None)
    assert scheduler is None
    assert isinstance(model, nn.Linear)


def test_the_single_preparers_check_their_kind() -> None:
    with pytest.raises(TypeError, match="given an optimizer"):
        Accelerator().prepare_model(objects()[1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="without anything"):
        Accelerator().prepare()


def test_the_prepared_optimizer_shows_the_wrapped_one(tmp_path: Any) -> None:
    model, optimizer, *_ = objects()
    prepared = Accelerator().prepare(optimizer)
    assert prepared.param_groups is optimizer.param_groups
    assert prepared.state is optimizer.state
    prepared.param_groups[0]["lr"] = 0.5
    prepared.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert len(optimizer.param_groups) == 2
    assert prepared.state_dict() == optimizer.state_dict()
    calls = []
    prepared.register_step_post_hook(lambda *_: calls.append(1))
    model(torch.ones(1)).sum().backward()
    closure_result = prepared.step(lambda: 3.0)
    assert closure_result == 3.0
    assert calls == [1]
    torch.save(prepared, tmp_path / "optimizer.pt")
    again = torch.load(tmp_path / "optimizer.pt", weights_only=False)
    assert again.param_groups[0]["lr"] == 0.5


def test_a_scheduler_made_over_the_prepared_optimizer_works() -> None:
    _model, optimizer, *_ = objects()
    prepared = Accelerator().prepare(optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(prepared, 1)
    prepared.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


def test_unwrapping_a_compiled_model() -> None:
    model = nn.Linear(1, 1)
    compiled = torch.compile(model)
    accelerator = Accelerator()
    prepared = accelerator.prepare(compiled)
    assert accelerator.unwrap_model(prepared) is compiled
    assert accelerator.unwrap_model(prepared, keep_torch_compile=False) is model
    assert set(accelerator.get_state_dict(prepared)) == {"weight", "bias"}


def test_a_prepared_loader_shows_the_batches_of_this_process() -> None:
    base = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2)
    assert Accelerator().prepare(base).batch_sampler is base.batch_sampler


def test_a_stateful_loader_passes_for_one_of_torchdata() -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2))
    assert isinstance(loader, torchdata.StatefulDataLoader)
    seen = [batch[0].tolist() for batch, _ in zip(loader, range(2), strict=False)]
    assert seen == [[0, 1], [2, 3]]

"""Checks of collectives, processes and training on two processes."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from both import FOLDER, accelerator, everyone, me
from torch import nn
from torch.utils.data import (
    DataLoader,
    TensorDataset,
)

from accelerate_runtime import Accelerator, DistributedDataParallelKwargs, DistributedType, PartialState
from accelerate_runtime.utils import (
    DistributedOperationException,
    broadcast,
    gather,
    gather_object,
    pad_across_processes,
    reduce,
)


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def check_where_we_are() -> None:
    assert (accelerator.num_processes, dist.get_world_size(), dist.get_backend()) == (2, 2, "gloo")
    assert accelerator.distributed_type == DistributedType.MULTI_CPU == PartialState().distributed_type
    assert (accelerator.is_main_process, accelerator.is_last_process) == (me == 0, me == 1)
    assert everyone(me) == [0, 1]


def check_collectives() -> None:
    mine = torch.arange(4.0).reshape(2, 2).t() + 10 * me  # not contiguous: gloo would be silently wrong
    assert torch.equal(gather(mine), torch.tensor([[0.0, 2], [1, 3], [10, 12], [11, 13]]))
    strided = torch.arange(6.0)[::2] + me
    assert reduce(strided, "sum").tolist() == [1, 5, 9]
    assert reduce(strided).tolist() == [0.5, 2.5, 4.5]
    assert reduce(strided, "none").tolist() == strided.tolist() == [me, 2 + me, 4 + me]
    assert accelerator.reduce(torch.tensor(me), "mean", scale=4.0).item() == 2
    assert accelerator.reduce(torch.tensor([me, -me]), "max").tolist() == [1, 0]
    assert broadcast(strided, from_process=1).tolist() == [1, 3, 5]
    Pair = namedtuple("Pair", "a b")
    pair = gather(Pair(torch.tensor(me), {"k": torch.tensor([me == 0])}))
    assert type(pair) is Pair
    assert pair.a.tolist() == [0, 1]
    assert pair.b["k"].tolist() == [True, False]
    ragged = torch.ones(1 + me, 2)
    assert pad_across_processes(ragged, pad_index=5).tolist() == [[[1, 1], [5, 5]], [[1, 1], [1, 1]]][me]
    assert pad_across_processes(ragged, pad_index=5, pad_first=True).tolist()[0] == [[5, 5], [1, 1]][me]
    assert gather_object([me, "x"]) == [0, "x", 1, "x"]
    with pytest.raises(TypeError, match="str"):
        gather("text")


def check_debug_mode_compares_before_it_waits() -> None:
    assert not PartialState().debug
    PartialState().debug = True
    try:
        assert gather(torch.tensor([me])).tolist() == [0, 1]
        assert pad_across_processes(torch.ones(1 + me)).shape == (2,)
        for act, data, told in (
            (gather, torch.ones(1 + me), r"process 1: gather of float32\[2\]"),
            (
                reduce,
                {"x": torch.ones(2, dtype=[torch.int64, torch.bool][me])},
                r"process 0: reduce of \{x: int64\[2\]\}",
            ),
            (broadcast, torch.ones((1,) * (me + 1)), r"process 1: broadcast of float32\[1, 1\]"),
            (
                pad_across_processes,
                torch.ones((1,) * (me + 1)),
                r"process 1: pad_across_processes of float32\[any, 1\]",
            ),
            ([gather, reduce][me], torch.ones(1), "process 1: reduce of"),
        ):
            with pytest.raises(DistributedOperationException, match=told):
                act(data)
    finally:
        PartialState().debug = False


def check_only_some_processes_act() -> None:
    path = FOLDER / "saved.pt"
    accelerator.save({"from": me}, path)
    accelerator.wait_for_everyone()
    assert torch.load(path) == {"from": 0}
    assert everyone(accelerator.on_main_process(lambda: "ran")()) == ["ran", None]
    assert everyone(accelerator.on_process(process_index=1)(lambda: "ran")()) == [None, "ran"]
    with accelerator.main_process_first():
        if me == 0:
            (FOLDER / "cache").write_text("made once")
        assert (FOLDER / "cache").read_text() == "made once"
    with accelerator.split_between_processes([1, 2, 3]) as part:
        assert part == [[1, 2], [3]][me]


def train_alone(inputs: torch.Tensor, targets: torch.Tensor, size: int) -> nn.Module:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for start in range(0, len(inputs), size):
        loss = (model(inputs[start : start + size]) - targets[start : start + size]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def check_training_follows_one_process_and_ranks_stay_equal() -> None:
    torch.manual_seed(1)
    inputs, targets = torch.randn(32, 8), torch.randn(32, 1)
    alone = train_alone(inputs, targets, 8)
    model = net(seed=me)  # the main process's weights count
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = accelerator.prepare(DataLoader(TensorDataset(inputs, targets), batch_size=4))
    optimizer = accelerator.prepare(optimizer)
    model = accelerator.prepare(model)
    assert len(loader) == 4
    assert accelerator.prepare(model) is model
    for x, y in loader:
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    state = accelerator.get_state_dict(model)
    assert set(state) == set(alone.state_dict())
    for name, value in alone.state_dict().items():
        assert torch.allclose(state[name], value, atol=1e-6), name
        theirs = gather(state[name][None])
        assert torch.equal(theirs[0], theirs[1]), name
    assert accelerator.unwrap_model(model) is model.module


def check_accumulation_exchanges_gradients_once_a_window() -> None:
    torch.manual_seed(1)
    inputs, targets = torch.randn(24, 8), torch.randn(24, 1)
    alone = train_alone(inputs, targets, 8)
    for top in (True, False):
        many = Accelerator(gradient_accumulation_steps=2)
        first, second = net(), nn.Linear(1, 1)
        model, _, loader = many.prepare(first, second, DataLoader(TensorDataset(inputs, targets), batch_size=2))
        optimizer = many.prepare(torch.optim.SGD(first.parameters(), lr=0.1))
        for number, (x, y) in enumerate(loader):
            with many.accumulate():
                if top:
                    optimizer.zero_grad()
                many.backward((model(x) - y).pow(2).mean())
                gradient = gather(first[0].weight.grad[None])
                assert torch.equal(gradient[0], gradient[1]) == many.sync_gradients == (number % 2 == 1)
                optimizer.step()
                if not top:
                    optimizer.zero_grad()
        for mine, theirs in zip(first.parameters(), alone.parameters(), strict=True):
            assert torch.allclose(mine, theirs, atol=1e-6), f"zero_grad at the {'top' if top else 'end'}"


def check_schedulers_count_the_unsharded_loader() -> None:
    def rate(accelerator: Accelerator, make: Callable[[Any], Any], *metrics: float) -> float:
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        scheduler = accelerator.prepare_scheduler(make(optimizer))
        optimizer = accelerator.prepare(optimizer)
        optimizer.step()
        scheduler.step(*metrics)
        return float(optimizer.param_groups[0]["lr"])

    halved = lambda o: torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.5)  # noqa: E731
    assert rate(accelerator, halved) == 0.25
    assert rate(Accelerator(split_batches=True), halved) == 0.5
    assert rate(Accelerator(step_scheduler_with_optimizer=False), halved) == 0.5
    plateau = lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=0)  # noqa: E731
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = accelerator.prepare(plateau(optimizer))
    for _ in range(3):
        scheduler.step(1.0)
    assert optimizer.param_groups[0]["lr"] == 0.25  # two bad epochs, not four


def check_a_model_without_trainable_parameters_is_prepared() -> None:
    frozen = nn.Linear(2, 2).requires_grad_(False)
    assert accelerator.prepare(frozen) is frozen
    assert accelerator.prepare_model(net(), evaluation_mode=True)(torch.zeros(1, 8)).shape == (1, 1)


def check_half_precision_trains_in_step() -> None:
    for mode in ("bf16", "fp16"):
        half = Accelerator(mixed_precision=mode)
        model = net()
        model, optimizer = half.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
        for _ in range(3):
            out = model(torch.randn(4, 8))
            assert out.dtype is torch.float32
            half.backward(out.pow(2).mean())
            half.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        weights = gather(half.unwrap_model(model)[0].weight.detach()[None])
        assert torch.equal(weights[0], weights[1])
        assert not half.optimizer_step_was_skipped


class Wide(nn.Module):
    """A model with attributes and methods of its own, as they are met in scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
        self.criterion = nn.MSELoss()
        self.config, self.temperature = {"hidden": 4}, 1.0
        self.scale = nn.Parameter(torch.ones(1))

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(x) * self.scale  # type: ignore[no-any-return]

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.criterion(self.forward(x), y) / self.temperature}

    def train_alone(self, x: torch.Tensor) -> None:
        self.forward(x).sum().backward()

    def count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encode(x))  # type: ignore[no-any-return]


def check_attributes_and_methods_of_a_prepared_model() -> None:
    torch.manual_seed(1)
    inputs, targets = torch.randn(2, 4, 4), torch.randn(2, 4, 1)
    torch.manual_seed(0)
    alone = Wide()
    alone.loss(inputs.flatten(0, 1), targets.flatten(0, 1))["loss"].backward()
    torch.manual_seed(0)
    model: Any = accelerator.prepare(Wide())
    inner = accelerator.unwrap_model(model)
    assert model.config is inner.config
    assert model.scale is inner.scale
    assert model.criterion is inner.criterion
    if me == 0:
        assert model.count() == 26  # on one process alone: nobody waits
    model.loss(inputs[me], targets[me])["loss"].backward()
    for mine, theirs in zip(inner.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-6)
    model.temperature = 2.0
    assert inner.temperature == 2.0
    model.zero_grad()
    with accelerator.no_sync(model):
        model.loss(inputs[me], targets[me])["loss"].backward()
    gradients = gather(inner.head.weight.grad)
    assert not torch.equal(gradients[0], gradients[1])
    with torch.no_grad():
        assert model.encode(inputs[0]).shape == (4, 4)
    with pytest.raises(AttributeError, match=r"unwrap_model\(model\)\.encoder"):
        _ = model.encoder
    with pytest.raises(TypeError, match="cannot be replaced"):
        model.encoder = nn.Linear(4, 4)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = model.nothing
    model.zero_grad()
    with pytest.raises(RuntimeError, match="'train_alone' ran backward"):
        model.train_alone(inputs[me])
    searching = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
    other: Any = searching.prepare(Wide())
    assert other.count() == 26
    with pytest.raises(RuntimeError, match="'loss' computed something with gradients"):
        other.loss(inputs[me], targets[me])

"""P1: on one process, prepared objects train exactly as raw ones do. Nothing is drawn, fetched or reordered."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from accelerate_runtime import Accelerator


class Noisy(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Draws from the global generators when a sample is fetched, as augmentations do."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(6) + index + random.random(), torch.tensor(index % 3)


class NoisyStream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield from (Noisy()[i] for i in range(22))


def build() -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    torch.manual_seed(5)
    random.seed(5)
    model = nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.5), nn.Linear(12, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "shuffled": lambda: DataLoader(Noisy(), batch_size=4, shuffle=True),
    "own generator": lambda: DataLoader(
        Noisy(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1)
    ),
    "stream": lambda: DataLoader(NoisyStream(), batch_size=4),
}


def train(kind: str, prepared: bool) -> tuple[list[float], list[torch.Tensor], torch.Tensor, Any]:
    model, optimizer, scheduler = build()
    loader = LOADERS[kind]()
    backward: Callable[[torch.Tensor], Any] = lambda loss: loss.backward()  # noqa: E731
    if prepared:
        accelerator = Accelerator()
        model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
        backward = accelerator.backward
    losses = []
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            backward(loss)
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
    return losses, list(model.parameters()), torch.get_rng_state(), random.getstate()


@pytest.mark.parametrize("kind", LOADERS)
def test_losses_parameters_and_random_states_are_bit_identical(kind: str) -> None:
    losses, parameters, torch_state, python_state = train(kind, prepared=False)
    our_losses, our_parameters, our_torch_state, our_python_state = train(kind, prepared=True)
    assert our_losses == losses
    assert all(torch.equal(ours, raw) for ours, raw in zip(our_parameters, parameters, strict=True))
    assert torch.equal(our_torch_state, torch_state)
    assert our_python_state == python_state


def test_nothing_is_wrapped_that_need_not_be() -> None:
    model, _, _ = build()
    accelerator = Accelerator()
    assert accelerator.prepare(model) is model
    loader = DataLoader(Noisy(), batch_size=4)
    assert accelerator.prepare(loader).source is loader


def test_a_tensor_is_gathered_as_it_is() -> None:
    accelerator, scalar = Accelerator(), torch.tensor(1.0)
    assert accelerator.gather(scalar) is scalar
    assert accelerator.gather_for_metrics((scalar,)) == (scalar,)
    assert accelerator.reduce(scalar, "mean") is scalar
    assert accelerator.pad_across_processes(scalar) is scalar


def test_saved_files_are_those_of_torch_save(tmp_path: Any) -> None:
    model, optimizer, _ = build()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "raw.pt")
    accelerator = Accelerator()
    ours, our_optimizer = accelerator.prepare(*copy.deepcopy((model, optimizer)))
    state = {"model": accelerator.get_state_dict(ours), "optimizer": our_optimizer.state_dict()}
    (tmp_path / "ours").mkdir()
    accelerator.save(state, tmp_path / "ours" / "raw.pt")
    assert (tmp_path / "ours" / "raw.pt").read_bytes() == (tmp_path / "raw.pt").read_bytes()


def test_the_processes_of_one() -> None:
    accelerator = Accelerator()
    assert (accelerator.num_processes, accelerator.process_index, accelerator.local_process_index) == (1, 0, 0)
    assert accelerator.is_main_process
    assert accelerator.is_local_main_process
    assert accelerator.is_last_process
    assert not accelerator.use_distributed
    assert accelerator.distributed_type == "NO"
    assert accelerator.device == torch.device("cpu") == accelerator.state.device
    accelerator.wait_for_everyone()
    accelerator.end_training()
    accelerator.end_training()


def test_printing_is_the_main_processs(capsys: pytest.CaptureFixture[str]) -> None:
    Accelerator().print("loss", 0.5, sep=": ")
    assert capsys.readouterr().out == "loss: 0.5\n"


def test_forgetting_what_was_prepared() -> None:
    model, optimizer, _ = build()
    accelerator = Accelerator()
    prepared = accelerator.prepare(optimizer)
    model, optimizer_ = accelerator.free_memory(model, prepared)
    assert model is None
    assert optimizer_ is None
    assert accelerator.prepare(optimizer) is not prepared


def test_a_schedule_that_has_ended_stays_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    accelerator = Accelerator()
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=2)
    optimizer, schedule = accelerator.prepare(optimizer, schedule)
    for _ in range(4):
        optimizer.step()
        schedule.step()
    assert caplog.text.count("OneCycleLR was made for 2 steps") == 1


def test_a_schedule_that_loads_another_length_follows_it() -> None:
    def made(steps: int) -> tuple[Any, Any]:
        optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=steps)
        prepared: tuple[Any, Any] = Accelerator().prepare(optimizer, schedule)
        return prepared

    _, long = made(20)
    optimizer, short = made(3)
    short.load_state_dict(long.state_dict())
    for _ in range(10):
        optimizer.step()
        short.step()
    assert short.last_epoch == 10

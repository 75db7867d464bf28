"""Checks of going on from a loader's state on two processes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from both import accelerator, diverge, everyone, me
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler

from accelerate_runtime import Accelerator, DataLoaderConfiguration
from accelerate_runtime.data import DataLoaderShard

EPOCHS, LENGTH = 2, 19  # with batches of 2: 5 rounds an epoch, the last one dealt again


def draw() -> tuple[float, float, float]:
    return random.random(), float(numpy.random.randn()), float(torch.rand(()))


class Augmented(Dataset[Any]):
    """Draws for each sample."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        return index, draw()


class Late(Dataset[Any]):
    """Draws after many batches: too late to be told apart from those that do not draw."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return index, draw() if index > 24 else None


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for number in random.sample(range(LENGTH), LENGTH):
            yield number, draw()


class SeekableStream(IterableDataset[Any]):
    def __init__(self) -> None:
        self.at = self.read = 0

    def __iter__(self) -> Iterator[Any]:
        while self.at < LENGTH:
            self.at += 1
            self.read += 1
            yield self.at, draw()
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class OwnBatches:
    """A batch sampler of unknown make that draws as it goes."""

    def __iter__(self) -> Iterator[list[int]]:
        rest = torch.randperm(LENGTH).tolist()
        while rest:
            size = int(torch.randint(1, 4, ()))
            yield rest[:size]
            rest = rest[size:]


def over(dataset: Any, **options: Any) -> Callable[[], DataLoader[Any]]:
    return lambda: DataLoader(dataset(), **({"batch_size": 2, "collate_fn": list} | options))


def numbers() -> Any:
    return range(LENGTH)


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "shuffled": over(numbers, shuffle=True),
    "own generator": lambda: over(numbers, shuffle=True, generator=torch.Generator().manual_seed(7 + me))(),
    "distributed": lambda: over(numbers, sampler=DistributedSampler(numbers(), 2, me))(),
    "own batches": lambda: DataLoader(numbers(), batch_sampler=OwnBatches(), collate_fn=list),  # type: ignore
    "batches as items": over(
        lambda: torch.arange(LENGTH), batch_size=None, sampler=BatchSampler(RandomSampler(numbers()), 2, False)
    ),
    "augmented": over(Augmented, shuffle=True),
    "draws late": over(Late),
    "stream": over(Stream),
    "seekable stream": over(SeekableStream),
}


class Run:
    def __init__(self, make: Callable[[], DataLoader[Any]], steps: int = 1, **options: Any) -> None:
        diverge()
        config = DataLoaderConfiguration(**options)
        accelerator = Accelerator(gradient_accumulation_steps=steps, dataloader_config=config)
        self.loader: DataLoaderShard = accelerator.prepare(make())

    def train(self, epoch: int = 0, then: Callable[[int, int], object] = lambda epoch, done: None) -> list[Any]:
        trace: list[Any] = []
        for number in range(epoch, EPOCHS):
            self.loader.set_epoch(number)
            for batch in self.loader:
                values = batch.tolist() if isinstance(batch, torch.Tensor) else list(batch)
                share = self.loader.gradient_state.passes[-1].share
                trace.append((values, draw(), share, self.loader.end_of_dataloader))
                then(number, len(trace))
            then(number + 1, len(trace))
        return trace

    def save(self) -> tuple[Any, ...]:
        return self.loader.state_dict(), random.getstate(), numpy.random.get_state(), torch.get_rng_state()

    def load(self, saved: tuple[Any, ...]) -> None:
        self.loader.load_state_dict(saved[0])
        random.setstate(saved[1])
        numpy.random.set_state(saved[2])
        torch.set_rng_state(saved[3])


def check(new: Callable[[], Run], places: Callable[[int], bool] = lambda number: True) -> None:
    whole = new().train()
    saves: list[tuple[int, int, Any]] = []
    run = new()
    assert run.train(0, lambda epoch, done: saves.append((epoch, done, run.save()))) == whole
    for number, (epoch, done, saved) in enumerate(saves):
        if places(number):
            again = new()
            random.seed(99)
            torch.manual_seed(99)
            again.load(saved)
            assert again.train(epoch) == whole[done:], number


def check_a_run_goes_on_where_it_was() -> None:
    for kind, make in LOADERS.items():
        try:
            check(lambda make=make: Run(make))  # type: ignore[misc]
        except AssertionError as error:
            raise AssertionError(kind) from error


def check_and_with_options() -> None:
    check(lambda: Run(LOADERS["shuffled"], use_seedable_sampler=True))
    check(lambda: Run(over(numbers, shuffle=True, batch_size=4), split_batches=True))
    check(lambda: Run(LOADERS["augmented"], even_batches=False))
    check(lambda: Run(LOADERS["stream"], steps=4))
    check(lambda: Run(LOADERS["seekable stream"], steps=4))


def check_and_with_workers() -> None:
    def some(number: int) -> bool:
        return number in (2, 4, 5, 7)

    check(lambda: Run(over(Augmented, shuffle=True, num_workers=1)), some)
    check(lambda: Run(over(Augmented, shuffle=True, num_workers=2, persistent_workers=True)), some)
    check(lambda: Run(over(SeekableStream, num_workers=1)), some)


def check_and_where_batches_are_dispatched() -> None:
    for kind in ("shuffled", "own generator", "augmented", "stream", "seekable stream"):
        check(lambda kind=kind: Run(LOADERS[kind], dispatch_batches=True), lambda number: number % 2 == 0)  # type: ignore
    for persistent in (False, True):
        make = over(Augmented, shuffle=True, num_workers=2, persistent_workers=persistent)
        check(lambda make=make: Run(make, dispatch_batches=True), lambda number: number in (2, 5, 7))  # type: ignore
    run = Run(LOADERS["own batches"], dispatch_batches=True)
    for number, _ in enumerate(run.loader):
        draw()
        if number == 2:
            saved = run.save()
            break
    again = Run(LOADERS["own batches"], dispatch_batches=True)
    again.load(saved)
    with pytest.raises(Exception, match="does not give the same first 6 items again"):
        list(again.loader)


def check_a_stream_seeks_to_its_place_and_completes_its_last_batch() -> None:
    run = Run(LOADERS["seekable stream"])
    for number, _ in enumerate(run.loader):
        if number == 2:
            saved = run.save()
    again = Run(LOADERS["seekable stream"])
    again.load(saved)
    rest = list(again.loader)
    assert len(rest) == 2
    assert again.loader.dataset.read == 4 + 7  # the first batches of all, which complete the last; the rest
    everything = [sample for part in everyone(rest) for batch in part for sample, _ in batch]
    assert sorted(everything) == [1, *range(13, LENGTH + 1)]


def check_batches_are_skipped_on_both_processes() -> None:
    torch.manual_seed(3)
    loader = accelerator.prepare(over(numbers, shuffle=True)())
    whole, second = list(loader), list(loader)
    torch.manual_seed(3)
    skipping = accelerator.skip_first_batches(loader, 3)
    assert [list(skipping), list(loader)] == [whole[3:], second]
    torch.manual_seed(3)
    rest = accelerator.prepare(accelerator.skip_first_batches(over(numbers, shuffle=True)(), 6))  # of all processes
    assert next(iter(rest)) == whole[3]  # the next is completed from its own start
    assert len(rest) == 2


def check_a_state_of_the_other_process_is_refused() -> None:
    run = Run(LOADERS["shuffled"])
    next(batches := iter(run.loader))
    other = everyone(run.loader.state_dict())[1 - me]
    with pytest.raises(ValueError, match=f"of process index {1 - me}, but this is {me}"):
        run.loader.load_state_dict(other)
    list(batches)


def check_a_seedable_order_is_that_of_the_main_process() -> None:
    torch.manual_seed(3 + me)
    config = DataLoaderConfiguration(use_seedable_sampler=True)
    loader = Accelerator(dataloader_config=config).prepare(over(numbers, shuffle=True)())
    seen = [x for part in everyone(list(loader)) for batch in part for x in batch]
    assert set(seen) == set(range(LENGTH))
    assert everyone(loader.sampler.initial_seed) == [3, 3]

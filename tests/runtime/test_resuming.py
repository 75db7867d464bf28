"""A run that goes on from a loader's state sees what it would have seen: the batches, their order, what is drawn."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    WeightedRandomSampler,
    get_worker_info,
)

from accelerate_runtime import Accelerator, DataLoaderConfiguration
from accelerate_runtime.data import DataLoaderShard

EPOCHS = 2
LENGTH = 11  # with batches of 2: 6 an epoch, the last one short
NUMBERS = list(range(LENGTH))

Draws = tuple[float, float, float]
Trace = list[tuple[Any, Draws]]


def draw() -> Draws:
    return random.random(), float(numpy.random.randn()), float(torch.rand(()))


class Augmented(Dataset[Any]):
    """Draws for each sample, from all global generators and from its own."""

    def __init__(self) -> None:
        self.rng = numpy.random.default_rng(3)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        return index, draw(), float(self.rng.random())


class Stream(IterableDataset[Any]):
    """Shuffled where a pass begins; each worker has its part."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        order = NUMBERS if info is None else NUMBERS[info.id :: info.num_workers]
        for number in random.sample(order, len(order)):
            yield number, draw()


class SeekableStream(IterableDataset[Any]):
    """Says where it is; parts of workers differ in length."""

    def __init__(self) -> None:
        self.at = 0
        self.read = 0

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker = 0 if info is None else info.id
        while self.at < LENGTH - 4 * worker:
            self.at += 1
            self.read += 1
            yield 100 * worker + self.at, draw()
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class Shuffled(Sampler[int]):
    """Of unknown make; draws where a pass begins."""

    def __iter__(self) -> Iterator[int]:
        yield from random.sample(NUMBERS, LENGTH)

    def __len__(self) -> int:
        return LENGTH


class WithOwnGenerator(Sampler[int]):
    """Draws from a generator of its own, sample by sample."""

    def __init__(self) -> None:
        self.rng = random.Random(4)

    def __iter__(self) -> Iterator[int]:
        for _ in NUMBERS:
            yield self.rng.randrange(LENGTH)


class CountsEpochs(Sampler[int]):
    """Its order depends on how often it was read."""

    def __init__(self) -> None:
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        generator = random.Random(self.epoch)
        self.epoch += 1
        yield from generator.sample(NUMBERS, LENGTH)

    def __len__(self) -> int:
        return LENGTH


class OwnBatches:
    """A batch sampler of unknown make and length."""

    def __iter__(self) -> Iterator[list[int]]:
        rest = torch.randperm(LENGTH).tolist()
        sizes = torch.randint(1, 4, (LENGTH,)).tolist()
        while rest:
            size = sizes.pop()
            yield rest[:size]
            rest = rest[size:]


class Doubling(DataLoader[Any]):
    """A loader with an iteration of its own."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch, batch


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def over_numbers(**options: Any) -> DataLoader[Any]:
    return DataLoader(NUMBERS, **({"batch_size": 2} | options))  # type: ignore[arg-type]


LOADERS: dict[str, Callable[..., DataLoader[Any]]] = {
    "shuffled": lambda **o: over_numbers(shuffle=True, **o),
    "in order": lambda **o: over_numbers(**o),
    "own generator": lambda **o: over_numbers(shuffle=True, generator=seeded(7), **o),
    "sampler's generator": lambda **o: over_numbers(sampler=RandomSampler(NUMBERS, generator=seeded(7)), **o),
    "with replacement": lambda **o: over_numbers(
        sampler=RandomSampler(NUMBERS, replacement=True, num_samples=70, generator=seeded(7)), batch_size=12, **o
    ),
    "weighted": lambda **o: over_numbers(sampler=WeightedRandomSampler([1.0] * LENGTH, LENGTH), **o),
    "distributed": lambda **o: over_numbers(sampler=DistributedSampler(NUMBERS, 1, 0), **o),
    "own sampler": lambda **o: over_numbers(sampler=Shuffled(), **o),
    "sampler with a generator": lambda **o: over_numbers(sampler=WithOwnGenerator(), **o),
    "sampler that counts": lambda **o: over_numbers(sampler=CountsEpochs(), **o),
    "own batches": lambda **o: DataLoader(NUMBERS, batch_sampler=OwnBatches(), **o),  # type: ignore
    "batches as items": lambda **o: DataLoader(
        torch.arange(LENGTH),  # type: ignore[arg-type]
        batch_size=None,
        sampler=BatchSampler(RandomSampler(NUMBERS), 2, False),
        **o,
    ),
    "augmented": lambda **o: DataLoader(Augmented(), batch_size=2, shuffle=True, collate_fn=list, **o),
    "stream": lambda **o: DataLoader(Stream(), batch_size=2, collate_fn=list, **o),
    "stream of items": lambda **o: DataLoader(Stream(), batch_size=None, **o),
    "seekable stream": lambda **o: DataLoader(SeekableStream(), batch_size=2, collate_fn=list, **o),
    "own loader": lambda **o: Doubling(Augmented(), batch_size=2, shuffle=True, collate_fn=list, **o),
}


class Run:
    """A run that iterates one prepared loader, with draws of its own (dropout) at each batch."""

    def __init__(self, make: Callable[[], DataLoader[Any]], steps: int = 1, seedable: bool = False) -> None:
        self.reseed(5)
        config = DataLoaderConfiguration(use_seedable_sampler=seedable)
        accelerator = Accelerator(gradient_accumulation_steps=steps, dataloader_config=config)
        self.accelerator = accelerator
        self.loader: DataLoaderShard = accelerator.prepare(make())

    @staticmethod
    def reseed(seed: int) -> None:
        random.seed(seed)
        numpy.random.seed(seed)
        torch.manual_seed(seed)

    def train(self, epoch: int = 0, then: Callable[[int, int], object] = lambda epoch, done: None) -> Trace:
        """The epochs from `epoch` on; after each batch and each epoch `then` is told the epoch to go on in."""
        trace: Trace = []
        for number in range(epoch, EPOCHS):
            if hasattr(self.loader.sampler, "set_epoch"):
                self.loader.set_epoch(number)
            for batch in self.loader:
                trace.append((plain(batch), draw()))
                then(number, len(trace))
            then(number + 1, len(trace))
        return trace

    def save(self) -> tuple[bytes, Any]:
        """The loader's state as a file, and the global random states."""
        file = io.BytesIO()
        torch.save(self.loader.state_dict(), file)
        return file.getvalue(), (random.getstate(), numpy.random.get_state(), torch.get_rng_state())

    def load(self, saved: tuple[bytes, Any]) -> None:
        self.loader.load_state_dict(torch.load(io.BytesIO(saved[0]), weights_only=True))
        python, numpy_state, cpu = saved[1]
        random.setstate(python)
        numpy.random.set_state(numpy_state)
        torch.set_rng_state(cpu)


def plain(batch: Any) -> Any:
    """A batch as something to compare by `==`."""
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    return [plain(item) for item in batch] if isinstance(batch, (list, tuple)) else batch


def check(new: Callable[[], Run], places: set[int] | None = None) -> None:
    """Save after each batch and each epoch of a run, and go on from each of these places (or `places`) in a new one."""
    whole = new().train()
    saves: list[tuple[int, int, tuple[bytes, Any]]] = []
    run = new()
    assert run.train(0, lambda epoch, done: saves.append((epoch, done, run.save()))) == whole  # saving changes nothing
    for number, (epoch, done, saved) in enumerate(saves):
        assert len(saved[0]) < 100_000
        if places is not None and number not in places:
            continue
        again = new()
        again.reseed(99)
        again.load(saved)
        assert again.train(epoch) == whole[done:], number


@pytest.mark.parametrize("kind", LOADERS)
def test_a_run_goes_on_where_it_was(kind: str) -> None:
    check(lambda: Run(LOADERS[kind]))


@pytest.mark.parametrize("kind", ["stream", "seekable stream", "own batches"])
def test_and_where_batches_are_read_ahead(kind: str) -> None:
    check(lambda: Run(LOADERS[kind], steps=4))


def test_and_with_a_seedable_sampler() -> None:
    check(lambda: Run(LOADERS["shuffled"], seedable=True))


WITH_WORKERS = ["own generator", "own sampler", "augmented", "stream", "seekable stream"]
IN_AND_BETWEEN = {2, 5, 6, 9}


@pytest.mark.parametrize("kind", WITH_WORKERS)
@pytest.mark.parametrize("persistent", [False, True])
def test_and_with_workers(kind: str, persistent: bool) -> None:
    check(lambda: Run(lambda: LOADERS[kind](num_workers=2, persistent_workers=persistent)), IN_AND_BETWEEN)


def test_and_with_workers_and_batches_read_ahead() -> None:
    check(lambda: Run(lambda: LOADERS["seekable stream"](num_workers=2), steps=4), IN_AND_BETWEEN)


def test_a_persistent_worker_goes_on_after_a_pass_that_was_left() -> None:
    """Workers have fetched further than the script has read; the next pass goes on from there."""

    def new() -> Run:
        return Run(lambda: LOADERS["augmented"](num_workers=2, persistent_workers=True))

    run = new()
    for number, _ in enumerate(run.loader):
        if number == 1:
            break
    saved = run.save()
    rest = run.train(1)
    again = new()
    again.load(saved)
    assert again.train(1) == rest


def test_a_run_is_saved_and_goes_on_several_times() -> None:
    """Also into a process that has iterated already, and twice from the same state."""
    whole = Run(LOADERS["augmented"]).train()
    trace: Trace = []
    run = Run(LOADERS["augmented"])
    for start, steps in ((0, 2), (2, 1), (3, 2)):
        for batch in itertools.islice(run.loader, steps):
            trace.append((plain(batch), draw()))
            saved = run.save()
        run = Run(LOADERS["augmented"])
        run.train(2)
        run.load(saved)
        assert len(trace) == start + steps
    assert trace + run.train() == whole
    run.load(saved)
    assert run.save()[0] == saved[0]  # before it is iterated
    assert trace + run.train() == whole


def test_a_loader_is_saved_while_another_is_read() -> None:
    def new() -> tuple[Run, DataLoader[Any]]:
        run = Run(LOADERS["augmented"])
        return run, run.accelerator.prepare(LOADERS["shuffled"]())

    def train(run: Run, evaluated: DataLoader[Any], epoch: int = 0, save_at: tuple[int, int] = (9, 9)) -> Any:
        trace, saved = [], None
        for number in range(epoch, 2):
            for step, batch in enumerate(run.loader):
                trace.append(plain([batch, *evaluated, draw()]))
                if (number, step) == save_at:
                    saved = run.save(), evaluated.state_dict(), len(trace)
        return trace, saved

    whole, _ = train(*new())
    _, saved = train(*new(), save_at=(1, 3))
    run, evaluated = new()
    run.load(saved[0])
    evaluated.load_state_dict(saved[1])
    assert train(run, evaluated, 1)[0] == whole[saved[2] :]


def test_a_suspended_loader_goes_on_too() -> None:
    """A loader read by `next` here and there."""
    run = Run(LOADERS["shuffled"])
    batches = iter(run.loader)
    for _ in range(4):
        next(batches)
    saved = run.save()
    rest = [plain(batch) for batch in batches]
    again = Run(LOADERS["shuffled"])
    again.load(saved)
    assert [plain(batch) for batch in again.loader] == rest
    assert len(rest) == 2


def test_a_stream_that_can_seek_is_not_read_again() -> None:
    run = Run(LOADERS["seekable stream"])
    for number, _ in enumerate(run.loader):
        if number == 3:
            saved = run.save()
            break
    again = Run(LOADERS["seekable stream"])
    again.load(saved)
    assert len(list(again.loader)) == 2
    assert again.loader.dataset.read == 3

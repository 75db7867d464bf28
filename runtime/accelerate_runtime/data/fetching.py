"""Datasets that draw (augmentation, random pairs, a masking `collate_fn`): other numbers on each process.

Processes share their seeds, so code that draws from the global generators would draw the same everywhere. The main
process draws as one process would. On the others a batch is fetched with the generators seeded anew, from their state
and the process's index; afterwards they are as far as if the batch had been fetched without us, so what the script
draws itself stays in step between processes (unless a dataset draws more often on one process than on another, draws
very much, or seeds the generators itself: so they were out of step before).

Out of reach are generators that a dataset holds itself, those of other devices, and in one process (without workers) a
dataset that first draws after the first `_PROBES` batches, and not in the first of an epoch: watching on would cost
every step of all others.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from . import generators
from .generators import WORDS
from .twisters import Twister, global_twisters

_PROBES = 4  # batches after which a dataset that has not drawn counts as one that does not, until the next epoch
_BLOCKS = 64  # how many times that we follow


def draw_apart(loader: DataLoader[Any], index: int) -> None:
    """Have the dataset of `loader` draw numbers of its own on process `index`, in place."""
    if index:
        own = loader.__dict__  # DataLoader's __setattr__ has opinions
        own["_get_iterator"] = _Iterators(loader, index)
        own["worker_init_fn"] = SeededApart(loader.worker_init_fn, index)


@dataclass
class Watched:
    """What is known of a loader's dataset.

    Attributes:
        probes: how many more batches to watch.
        drawn: whether it draws.
        replicas: what follows each kind of generator; None where the dataset seeds it itself.
    """

    probes: int = _PROBES
    drawn: bool = False
    replicas: dict[str, Twister | None] = field(default_factory=dict)

    def begin_pass(self) -> None:
        """Watch its first batch at least."""
        self.probes = max(1, self.probes)

    def state_dict(self) -> dict[str, Any]:
        """It as plain data."""
        seeded = [name for name, replica in self.replicas.items() if replica is None]
        return {"probes": self.probes, "drawn": self.drawn, "seeded": seeded}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Know what `state_dict` told."""
        self.probes, self.drawn = state["probes"], state["drawn"]
        self.replicas = dict.fromkeys(state["seeded"])


def place_of_watched(loader: DataLoader[Any]) -> dict[str, Any]:
    """What is known where the next pass of `loader` begins."""
    iterators = loader.__dict__.get("_get_iterator")
    if not isinstance(iterators, _Iterators) or loader.num_workers:
        return {}
    iterators.watched.begin_pass()
    return {"fetcher": iterators.watched.state_dict()}


class _Iterators:
    """Stands in for a loader's `_get_iterator`.

    It does not keep the loader alive: in a cycle, workers would be left to the garbage collector, of any process.
    """

    def __init__(self, loader: DataLoader[Any], index: int) -> None:
        self.loader, self.index = weakref.ref(loader), index
        self.watched = Watched()

    def __getstate__(self) -> tuple[DataLoader[Any] | None, int]:
        return self.loader(), self.index

    def __setstate__(self, state: tuple[DataLoader[Any], int]) -> None:
        self.loader, self.index = weakref.ref(state[0]), state[1]
        self.watched = Watched()

    def __call__(self) -> Any:
        loader = self.loader()
        assert loader is not None  # it is calling
        iterator = type(loader)._get_iterator(loader)
        if isinstance(iterator, _SingleProcessDataLoaderIter):
            self.watched.begin_pass()
            iterator._dataset_fetcher = FetchedApart(iterator._dataset_fetcher, self.index, self.watched)
        return iterator


class SeededApart:
    """A `worker_init_fn` that mixes the process's index into what torch seeded the worker with, then calls `own`.

    What `own` seeds is mixed too: seeds may be its choice (`numpy.random.seed(42 + worker_id)`), but never its purpose
    that processes draw the same.
    """

    def __init__(self, own: Callable[[int], object] | None, index: int) -> None:
        self.own, self.index = own, index

    def __call__(self, worker: int) -> None:
        seed = _mix(torch.initial_seed(), self.index)
        for generator in global_twisters():
            generator.seed(seed)
        if (info := get_worker_info()) is not None:
            object.__setattr__(info, "seed", seed)  # own() may read it
        if self.own is not None:
            self.own(worker)
            for generator in global_twisters():
                generator.seed(_mix(generator.draw(), self.index))


class FetchedApart:
    """A loader's fetcher for process `index`; see this module."""

    def __init__(self, fetcher: Any, index: int, watched: Watched) -> None:
        self._fetcher, self._index, self.watched = fetcher, index, watched

    @property
    def ended(self) -> bool:
        """Whether an iterable dataset has ended."""
        return bool(getattr(self._fetcher, "ended", False))

    def fetch(self, wanted: Any) -> Any:
        watched = self.watched
        if not watched.probes and not watched.drawn:
            return self._fetcher.fetch(wanted)
        watched.probes = max(0, watched.probes - 1)
        forks = [_Fork(generator, self._index) for generator in global_twisters()]
        try:
            return self._fetcher.fetch(wanted)
        finally:
            for fork in forks:
                if fork.moved():
                    watched.drawn = True
                    fork.end(self._words(fork))
                else:
                    fork.end(0)

    def _words(self, fork: _Fork) -> int:
        """How many words the fork drew; 1 where that cannot be told."""
        name, replicas = fork.generator.name, self.watched.replicas
        if name not in replicas:
            replicas[name] = fork.generator.replica()
        replica = replicas[name]
        words = fork.words(replica) if replica is not None else 1
        if words is None:
            replicas[name] = None
        return words or 1


class _Fork:
    """A generator, seeded anew for process `index` until `end`."""

    def __init__(self, generator: Twister, index: int) -> None:
        self.generator = generator
        self._before = generators.read_one(generator.of)
        self._seed = _mix(generator.draw(), index)
        generator.seed(self._seed)
        self._seeded = generator.snapshot()

    def moved(self) -> bool:
        """Whether it was drawn from."""
        return not generators.same(self.generator.snapshot(), self._seeded)

    def words(self, replica: Twister) -> int | None:
        """How many 32-bit words were drawn; None if somebody seeded it, or they are too many to follow."""
        now = self.generator.snapshot()
        block = replica.block(now)
        replica.seed(self._seed)
        for number in range(_BLOCKS):
            replica.skip(WORDS if number else 1)
            if generators.same(replica.block(replica.snapshot()), block):
                return number * WORDS + replica.drawn(now)
        return None

    def end(self, words: int) -> None:
        """Go on where it was, `words` later."""
        generators.write_one(self.generator.of, self._before)
        if words:
            self.generator.skip(words)


def _mix(number: int, index: int) -> int:
    return (number + index * 0x9E3779B97F4A7C15) % 2**64

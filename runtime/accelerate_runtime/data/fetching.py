"""Datasets that draw (augmentation, random pairs, a masking `collate_fn`): other numbers on each process.

Processes share their seeds, so code that draws from the global generators would draw the same everywhere. The main
process draws as one process would. On the others a batch is fetched with the generators seeded anew, from their state
and the process's index; afterwards they are as far as if the batch had been fetched without us, so what the script
draws itself stays in step between processes (unless a dataset draws more often on one process than on another, draws
very much, or seeds the generators itself: so they were out of step before).

Out of reach are generators that a dataset holds itself, those of other devices, and in one process (without workers) a
dataset that first draws after `_PROBES` batches of an epoch: watching on would cost every step of all others.
"""

from __future__ import annotations

import ctypes
import random
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

_PROBES = 4  # batches of an epoch after which a dataset that has not drawn counts as one that does not
_WORDS = 624  # 32-bit words that a Mersenne twister makes at once
_BLOCKS = 64  # how many times that we follow


def draw_apart(loader: DataLoader[Any], index: int) -> None:
    """Have the dataset of `loader` draw numbers of its own on process `index`, in place."""
    if index:
        own = loader.__dict__  # DataLoader's __setattr__ has opinions
        own["_get_iterator"] = _Iterators(loader, index)
        own["worker_init_fn"] = SeededApart(loader.worker_init_fn, index)


class _Iterators:
    """Stands in for a loader's `_get_iterator`.

    It does not keep the loader alive: in a cycle, workers would be left to the garbage collector, of any process.
    """

    def __init__(self, loader: DataLoader[Any], index: int) -> None:
        self.loader, self.index = weakref.ref(loader), index

    def __getstate__(self) -> tuple[DataLoader[Any] | None, int]:
        return self.loader(), self.index

    def __setstate__(self, state: tuple[DataLoader[Any], int]) -> None:
        self.loader, self.index = weakref.ref(state[0]), state[1]

    def __call__(self) -> Any:
        loader = self.loader()
        assert loader is not None  # it is calling
        iterator = type(loader)._get_iterator(loader)
        if isinstance(iterator, _SingleProcessDataLoaderIter):
            iterator._dataset_fetcher = FetchedApart(iterator._dataset_fetcher, self.index)
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
        for generator in _generators():
            generator.seed(seed)
        if (info := get_worker_info()) is not None:
            object.__setattr__(info, "seed", seed)  # own() may read it
        if self.own is not None:
            self.own(worker)
            for generator in _generators():
                generator.seed(_mix(generator.draw(), self.index))


class FetchedApart:
    """A loader's fetcher for process `index`; see this module."""

    def __init__(self, fetcher: Any, index: int) -> None:
        self._fetcher, self._index = fetcher, index
        self._probes = _PROBES
        self._drawn = False
        self._replicas: dict[type, _Generator | None] = {}  # None: the dataset seeds this kind itself

    @property
    def ended(self) -> bool:
        """Whether an iterable dataset has ended."""
        return bool(getattr(self._fetcher, "ended", False))

    def state_dict(self) -> dict[str, Any]:
        """What is known of the dataset by now."""
        seeded = [kind.__name__ for kind, replica in self._replicas.items() if replica is None]
        return {"probes": self._probes, "drawn": self._drawn, "seeded": seeded}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Know it again."""
        self._probes, self._drawn = state["probes"], state["drawn"]
        kinds = {kind.__name__: kind for kind in (_Python, _Numpy, _Torch)}
        self._replicas = dict.fromkeys((kinds[name] for name in state["seeded"]), None)

    def fetch(self, wanted: Any) -> Any:
        if not self._probes and not self._drawn:
            return self._fetcher.fetch(wanted)
        self._probes = max(0, self._probes - 1)
        forks = [_Fork(generator, self._index) for generator in _generators()]
        try:
            return self._fetcher.fetch(wanted)
        finally:
            for fork in forks:
                if fork.moved():
                    self._drawn = True
                    fork.end(self._words(fork))
                else:
                    fork.end(0)

    def _words(self, fork: _Fork) -> int:
        """How many words the fork drew; 1 where that cannot be told."""
        kind = type(fork.generator)
        if kind not in self._replicas:
            self._replicas[kind] = fork.generator.replica()
        replica = self._replicas[kind]
        words = fork.words(replica) if replica is not None else 1
        if words is None:
            self._replicas[kind] = None
        return words or 1


class _Fork:
    """A generator, seeded anew for process `index` until `end`."""

    def __init__(self, generator: _Generator, index: int) -> None:
        self.generator = generator
        self._before = generator.state()
        self._seed = _mix(generator.draw(), index)
        generator.seed(self._seed)
        self._seeded = generator.snapshot()

    def moved(self) -> bool:
        """Whether it was drawn from."""
        return not _same(self.generator.snapshot(), self._seeded)

    def words(self, replica: _Generator) -> int | None:
        """How many 32-bit words were drawn; None if somebody seeded it, or they are too many to follow."""
        now = self.generator.snapshot()
        block = replica.block(now)
        replica.seed(self._seed)
        for number in range(_BLOCKS):
            replica.skip(_WORDS if number else 1)
            if _same(replica.block(replica.snapshot()), block):
                return number * _WORDS + replica.drawn(now)
        return None

    def end(self, words: int) -> None:
        """Go on where it was, `words` later."""
        self.generator.restore(self._before)
        if words:
            self.generator.skip(words)


def _mix(number: int, index: int) -> int:
    return (number + index * 0x9E3779B97F4A7C15) % 2**64


class _Generator(ABC):
    """A Mersenne twister: a global one, or a replica of our own."""

    @abstractmethod
    def state(self) -> Any: ...

    @abstractmethod
    def restore(self, state: Any) -> None: ...

    @abstractmethod
    def seed(self, seed: int) -> None: ...

    @abstractmethod
    def draw(self) -> int:
        """A number of 63 bits or so."""

    @abstractmethod
    def skip(self, words: int) -> None: ...

    @abstractmethod
    def snapshot(self) -> Any:
        """Something to compare by `_same`; read it by the next two."""

    @abstractmethod
    def block(self, snapshot: Any) -> Any:
        """The block of words that it draws from."""

    @abstractmethod
    def drawn(self, snapshot: Any) -> int:
        """How many words of the block it has drawn."""

    @abstractmethod
    def replica(self) -> _Generator:
        """Another generator of this kind."""


def _same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


class _Python(_Generator):
    def __init__(self, of: Any = random) -> None:
        self.of = of

    def state(self) -> Any:
        return self.of.getstate()

    def restore(self, state: Any) -> None:
        self.of.setstate(state)

    def seed(self, seed: int) -> None:
        self.of.seed(seed)

    def draw(self) -> int:
        return int(self.of.getrandbits(63))

    def skip(self, words: int) -> None:
        self.of.getrandbits(32 * words)

    def snapshot(self) -> Any:
        return self.of.getstate()[1]

    def block(self, snapshot: Any) -> Any:
        return snapshot[:-1]

    def drawn(self, snapshot: Any) -> int:
        return int(snapshot[-1])

    def replica(self) -> _Generator:
        return _Python(random.Random())


class _Numpy(_Generator):
    def __init__(self, of: Any, bits: Any) -> None:
        self.of, self.bits = of, bits

    def state(self) -> Any:
        return self.of.get_state()

    def restore(self, state: Any) -> None:
        self.of.set_state(state)

    def seed(self, seed: int) -> None:
        self.of.seed(seed % 2**32)

    def draw(self) -> int:
        return int.from_bytes(self.of.bytes(8), "little")

    def skip(self, words: int) -> None:
        self.of.bytes(4 * words)

    def snapshot(self) -> Any:
        # numpy/random/src/mt19937/mt19937.h: the block, and how many are drawn; get_state() takes 30 times longer
        return ctypes.string_at(self.bits.ctypes.state_address, 4 * _WORDS + 4)

    def block(self, snapshot: Any) -> Any:
        return snapshot[: 4 * _WORDS]

    def drawn(self, snapshot: Any) -> int:
        return int.from_bytes(snapshot[4 * _WORDS :], sys.byteorder)

    def replica(self) -> _Generator:
        module = sys.modules["numpy.random"]
        bits = module.MT19937()
        return _Numpy(module.RandomState(bits), bits)


class _Torch(_Generator):
    def __init__(self, of: torch.Generator) -> None:
        self.of = of

    def state(self) -> Any:
        return self.of.get_state()

    def restore(self, state: Any) -> None:
        self.of.set_state(state)

    def seed(self, seed: int) -> None:
        self.of.manual_seed(seed)

    def draw(self) -> int:
        return int(torch.empty((), dtype=torch.int64).random_(generator=self.of))

    def skip(self, words: int) -> None:
        torch.empty(words, dtype=torch.int32).random_(generator=self.of)

    def snapshot(self) -> Any:
        # aten/src/ATen/CPUGeneratorImpl.cpp: the seed, how many are left (4 bytes), two more fields, the block
        return self.of.get_state()

    def block(self, snapshot: Any) -> Any:
        return snapshot[24 : 24 + 8 * _WORDS]

    def drawn(self, snapshot: Any) -> int:
        return _WORDS + 1 - int(snapshot[8:12].view(torch.int32))

    def replica(self) -> _Generator:
        return _Torch(torch.Generator())


def _generators() -> list[_Generator]:
    """The global generators; NumPy's where something has imported it, and left it the Mersenne twister that it is."""
    found: list[_Generator] = [_Python(), _Torch(torch.default_generator)]
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and type(bits := numpy.get_bit_generator()).__name__ == "MT19937":
        found.append(_Numpy(numpy, bits))
    return found

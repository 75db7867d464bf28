"""Iterable datasets: a process's part of one, and going on in the middle of those that can seek."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from ..random import ForkedRandomness
from . import generators
from .generators import States
from .parcels import Tagged
from .samplers import deal, pass_on_epoch
from .stand_in import StandIn


class IterableDatasetShard(StandIn, IterableDataset[Any]):
    """One process's samples of an iterable dataset: its consecutive part of every global batch, in order.

    Every process reads the whole stream, which must be the same everywhere.

    Args:
        dataset: the stream.
        size: samples of a process per batch; None where items are batches already.
        drop_last: leave out a last global batch that is not full.
        even: every process gets as many samples; see BatchSamplerShard.
    """

    stands_for = "dataset"

    def __init__(
        self,
        dataset: Iterable[Any],
        count: int,
        index: int,
        *,
        size: int | None,
        drop_last: bool = False,
        even: bool = True,
    ) -> None:
        self.dataset = dataset
        self.count, self.index, self.size, self.drop_last, self.even = count, index, size, drop_last, even
        self.around: ForkedRandomness | None = None
        self._first: Any = None  # the state of the dataset at the start of the pass, where it can seek
        self._ended = False
        self._loaded: dict[str, Any] | None = None
        self.generators_at_start: States = {}
        """In a worker that goes on in a pass: the random states that the pass began with there."""

    def __iter__(self) -> Iterator[Any]:
        wanted = (self.size or 1) * self.count
        around = nullcontext if self.around is None or get_worker_info() is not None else self.around
        start, stream = self._begin(wanted, around)
        while not self._ended:
            with around():
                stream = iter(self.dataset) if stream is None else stream
                samples = list(itertools.islice(stream, wanted))
            start = start or samples[:wanted]
            if len(samples) == wanted:
                own = wanted // self.count
                yield from samples[self.index * own : (self.index + 1) * own]
                continue
            self._ended = True
            if samples and not self.drop_last:
                parts, share = deal(samples, start, self.count, self.even, self.size)
                for sample in parts[self.index]:
                    yield Tagged(sample, share)

    def _begin(
        self, wanted: int, around: Callable[[], AbstractContextManager[None]]
    ) -> tuple[list[Any], Iterator[Any] | None]:
        """The samples that complete the last batch, and the stream, where it goes on at a loaded place."""
        loaded, self._loaded = self._loaded, None
        dataset: Any = self.dataset
        if loaded is None:
            self._ended = False
            self._first = dataset.state_dict() if can_seek(dataset) else None
            return [], None
        self._first, self._ended = loaded["first"], loaded["ended"]
        start: list[Any] = []
        if self.even and not self.drop_last:
            dataset.load_state_dict(self._first)
            held = generators.global_generators() | generators.held_generators({"dataset": dataset})
            now = generators.read(held)
            with around():
                generators.write(self.generators_at_start, held)
                start = list(itertools.islice(iter(dataset), wanted))
            generators.write(now, held)
        dataset.load_state_dict(loaded["dataset"])
        if self.around is not None:
            self.around.inner = loaded["random"]
        with around():
            return start, iter(dataset)

    def state_dict(self) -> dict[str, Any]:
        """Where the stream is. Only for datasets that can seek."""
        state = self.dataset.state_dict()  # type: ignore[attr-defined]
        random = None if self.around is None else self.around.inner
        return {"dataset": state, "first": self._first, "ended": self._ended, "random": random}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next pass there."""
        self._loaded = state

    def lengths(self) -> list[int]:
        """How many batches each process gets.

        Raises:
            TypeError: always; a stream's length is not known.
        """
        raise TypeError("an iterable dataset has no length that could be relied on")

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to the dataset, where it takes one."""
        pass_on_epoch(epoch, self.dataset)


def can_seek(dataset: Any) -> bool:
    """Whether `dataset` can tell its state, and be put back there."""
    if isinstance(dataset, IterableDatasetShard):
        dataset = dataset.dataset
    return callable(getattr(dataset, "state_dict", None)) and callable(getattr(dataset, "load_state_dict", None))

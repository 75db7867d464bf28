"""Iterators over a loader that begin at its first batch, or at a later one."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from .fetching import FetchedApart
from .indices import IndicesFrom, is_repeatable
from .loaders import index_sampler, is_stream
from .streams import can_seek
from .worker_state import Crew, Workers


def iterates_plainly(loader: DataLoader[Any]) -> bool:
    """Whether `loader` makes its iterators as DataLoader does, so that they can begin anywhere."""
    return type(loader).__iter__ is DataLoader.__iter__ and type(loader)._get_iterator is DataLoader._get_iterator


def place_of_idle_workers(loader: DataLoader[Any]) -> dict[str, Any]:
    """Where a pass begins that keeps the persistent workers of the last one."""
    iterator = loader._iterator if loader.persistent_workers else None
    if not isinstance(iterator, Workers):
        return {}
    iterator.settle()
    return {"workers": dict(vars(iterator.crew.at_start()))}


def dismiss_workers(loader: DataLoader[Any]) -> None:
    """Have the next pass start new workers."""
    if loader.persistent_workers:
        iterator, loader._iterator = loader._iterator, None
        if isinstance(iterator, Workers):
            iterator._shutdown_workers()


class Reopening(ABC):
    """A source that is no DataLoader. It is read again from its start, and knows how a pass began."""

    @abstractmethod
    def begin(self, beginning: dict[str, Any] | None, exact: bool) -> Iterator[Any]:
        """A pass from its first batch on.

        Args:
            beginning: of the pass that is repeated; None begins a new one.
            exact: it must give the same again.
        """

    @abstractmethod
    def beginning(self) -> dict[str, Any]:
        """How the pass in progress began."""

    @abstractmethod
    def next_beginning(self) -> dict[str, Any]:
        """Between passes: how the next one will begin."""

    @abstractmethod
    def dismiss_workers(self) -> None:
        """Let persistent workers go."""


class Opened:
    """An iterator over `source`, and what is known of the place where it is.

    Args:
        source: a DataLoader, or a Reopening.
        first: how many batches it leaves out; where it goes on from `place` exactly, there must be as many.
        place: what `place()` gave in the pass that it continues.
        exact: whether that was after `first` batches.

    Raises:
        ValueError: there are fewer batches, or other ones; a stream was read by another number of workers.
    """

    def __init__(self, source: Any, first: int = 0, place: dict[str, Any] | None = None, exact: bool = True) -> None:
        self.source = source
        self._indices: IndicesFrom | None = None
        self._place = place or {}
        self._exact = exact and place is not None
        self.iterator: Iterator[Any]
        if isinstance(source, Reopening):
            self.iterator = source.begin(self._place.get("beginning"), self._exact)
            self._read_on(first)
        elif not iterates_plainly(source):
            self.iterator = iter(source)
            self._read_on(first)
        elif source.num_workers:
            self._open_with_workers(first)
        elif is_stream(source):
            self._open_stream(first)
        else:
            self._open_at_index(first)

    def place(self) -> dict[str, Any]:
        """What is needed beside the number of batches read, and the random states, to open another one here."""
        place: dict[str, Any] = {}
        if isinstance(self.source, Reopening):
            place["beginning"] = self.source.beginning()
        if self._indices is not None and self._indices.checksum is not None:
            place["indices"] = self._indices.checksum
        if isinstance(self.iterator, Workers):
            place["workers"] = dict(vars(self.iterator.crew))
        fetcher = getattr(self.iterator, "_dataset_fetcher", None)
        if isinstance(fetcher, FetchedApart):
            place["fetcher"] = fetcher.watched.state_dict()
        if isinstance(self.iterator, _SingleProcessDataLoaderIter) and can_seek(self.source.dataset):
            dataset: Any = self.source.dataset
            place["dataset"] = copy.deepcopy({"state": dataset.state_dict(), "ended": getattr(fetcher, "ended", False)})
        return place

    def place_of_start(self) -> dict[str, Any]:
        """What is needed to read all again from the start of the pass."""
        place = self.place()
        if "workers" in place:
            place["workers"] = dict(vars(Crew(**place["workers"]).as_it_began()))
        return {name: value for name, value in place.items() if name in ("indices", "workers")}

    def begin(self) -> None:
        """Have samplers and streams that draw where they begin do so now."""
        iterator = self.iterator
        if isinstance(iterator, Workers):
            return  # they have begun
        if isinstance(iterator, _SingleProcessDataLoaderIter) and not is_stream(self.source):
            items: Iterator[Any] = iterator._sampler_iter
            iterator._sampler_iter = chain(list(islice(items, 1)), items)
        else:
            self.iterator = chain(list(islice(iterator, 1)), iterator)

    def _open_at_index(self, first: int) -> None:
        iterator = iter(self.source)
        assert isinstance(iterator, _SingleProcessDataLoaderIter)
        self.iterator = iterator
        if (indices := self._indices_from(first)) is not None:
            iterator._sampler_iter = indices.watch(iterator._sampler_iter)
            indices.skip(iterator._sampler_iter)
        if not self._exact:
            return
        if "fetcher" in self._place and isinstance(iterator._dataset_fetcher, FetchedApart):
            iterator._dataset_fetcher.watched.load_state_dict(self._place["fetcher"])
        if "dataset" in self._place and can_seek(self.source.dataset):
            self.source.dataset.load_state_dict(self._place["dataset"]["state"])

    def _open_stream(self, first: int) -> None:
        if not self._exact or "dataset" not in self._place or not can_seek(self.source.dataset):
            self.iterator = iter(self.source)
            self._read_on(first)
        elif self._place["dataset"]["ended"]:
            self.iterator = iter(())
        else:
            self.source.dataset.load_state_dict(self._place["dataset"]["state"])
            self.iterator = iter(self.source)

    def _open_with_workers(self, first: int) -> None:
        source, count, stream = self.source, self.source.num_workers, is_stream(self.source)
        crew = Crew(**self._place["workers"]) if "workers" in self._place else None
        same = crew is not None and crew.count == count
        if stream and crew is not None and not same and first:
            raise ValueError(
                f"the loader's state was saved with num_workers={crew.count}, but it has num_workers={count} now, and "
                f"how a stream is divided among workers depends on it. Set num_workers={crew.count}, or load a state "
                "that was saved between two epochs."
            )
        seek = stream and same and self._exact and can_seek(source.dataset)
        turn = 0 if stream else first % count
        if crew is not None:
            if not same:
                crew = Crew(count, crew.seed, crew.created, turn)
            elif not seek and (stream or not self._exact):
                crew = Crew(count, crew.seed, crew.created, turn, crew.before, crew.before)
        indices = None if stream else self._indices_from(first)
        known: Any = source._iterator if source.persistent_workers else None
        if crew is None and known is not None and not isinstance(known, Workers):
            self.iterator = iter(source)  # the script had begun to read it before it was prepared
            self._read_on(first)
            return
        if crew is None and known is not None:
            known.restart(source, indices, turn)
            self.iterator = known
        else:
            self.iterator = Workers(source, indices, crew if crew is not None else Crew(count, turn=turn))
            if source.persistent_workers:
                source._iterator = self.iterator
        if stream and not seek:
            self._read_on(first)

    def _indices_from(self, first: int) -> IndicesFrom | None:
        """The source's index sampler without the first items; None where it can be used as it is."""
        indices = index_sampler(self.source)
        if not first and is_repeatable(indices):
            return None
        self._indices = IndicesFrom(indices, first, self._place.get("indices") if self._exact else None, self._exact)
        return self._indices

    def _read_on(self, first: int) -> None:
        for number in range(first):
            try:
                next(self.iterator)
            except StopIteration:
                if not self._exact:
                    return
                raise ValueError(
                    f"a pass was to go on after batch {first}, but the loader ended after {number}: is its dataset the "
                    "one that the state was saved with?"
                ) from None

"""Iterators over a loader that begin at its first batch, or at a later one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from .fetching import FetchedApart
from .indices import IndicesFrom, is_repeatable
from .samplers import IterableDatasetShard


def is_plain(loader: DataLoader[Any]) -> bool:
    """Whether `loader` makes its iterators as DataLoader does, so that they can begin anywhere."""
    return type(loader).__iter__ is DataLoader.__iter__ and type(loader)._get_iterator is DataLoader._get_iterator


def is_stream(loader: DataLoader[Any]) -> bool:
    """Whether `loader` reads an iterable dataset."""
    return isinstance(loader.dataset, IterableDataset)


def index_sampler(loader: DataLoader[Any]) -> Any:
    """What `loader` takes its batches' indices from."""
    return loader.sampler if loader.batch_sampler is None else loader.batch_sampler


def can_seek(dataset: Any) -> bool:
    """Whether `dataset` can tell its state, and be put back there."""
    if isinstance(dataset, IterableDatasetShard):
        dataset = dataset.dataset
    return callable(getattr(dataset, "state_dict", None)) and callable(getattr(dataset, "load_state_dict", None))


class Opened:
    """An iterator over `source`, and what is known of the place where it is.

    Args:
        first: how many batches it leaves out.
        place: what `place()` gave where that many were read; None where that is not known.

    Raises:
        ValueError: there are fewer batches, or other ones.
    """

    def __init__(self, source: DataLoader[Any], first: int = 0, place: dict[str, Any] | None = None) -> None:
        self.source = source
        self._indices: IndicesFrom | None = None
        place = place or {}
        self.iterator: Iterator[Any]
        if not is_plain(source) or source.num_workers:
            self.iterator = iter(source)
            self._read_on(first)
        elif is_stream(source):
            self._open_stream(first, place)
        else:
            self.iterator = self._at_index(first, place)

    def place(self) -> dict[str, Any]:
        """What is needed beside the number of batches read, and the random states, to open another one here."""
        place: dict[str, Any] = {}
        if self._indices is not None and self._indices.checksum is not None:
            place["indices"] = self._indices.checksum
        fetcher = getattr(self.iterator, "_dataset_fetcher", None)
        if isinstance(fetcher, FetchedApart):
            place["fetcher"] = fetcher.state_dict()
        if isinstance(self.iterator, _SingleProcessDataLoaderIter) and can_seek(self.source.dataset):
            dataset: Any = self.source.dataset
            place["dataset"] = {"state": dataset.state_dict(), "ended": getattr(fetcher, "ended", False)}
        return place

    def _at_index(self, first: int, place: dict[str, Any]) -> Iterator[Any]:
        iterator = iter(self.source)
        assert isinstance(iterator, _SingleProcessDataLoaderIter)
        if first or not is_repeatable(iterator._index_sampler):
            self._indices = IndicesFrom(iterator._index_sampler, first, place.get("indices"))
            iterator._sampler_iter = self._indices.watch(iterator._sampler_iter)
            self._indices.skip(iterator._sampler_iter)
        if "fetcher" in place and isinstance(iterator._dataset_fetcher, FetchedApart):
            iterator._dataset_fetcher.load_state_dict(place["fetcher"])
        if "dataset" in place and can_seek(self.source.dataset):
            self.source.dataset.load_state_dict(place["dataset"]["state"])  # type: ignore[attr-defined]
        return iterator

    def _open_stream(self, first: int, place: dict[str, Any]) -> None:
        if "dataset" not in place or not can_seek(self.source.dataset):
            self.iterator = iter(self.source)
            self._read_on(first)
        elif place["dataset"]["ended"]:
            self.iterator = iter(())
        else:
            self.source.dataset.load_state_dict(place["dataset"]["state"])  # type: ignore[attr-defined]
            self.iterator = iter(self.source)

    def _read_on(self, first: int) -> None:
        for number in range(first):
            try:
                next(self.iterator)
            except StopIteration:
                raise ValueError(
                    f"a pass was to go on after batch {first}, but the loader ended after {number}: is its dataset the "
                    "one that the state was saved with?"
                ) from None

"""Loaders that leave out the first batches."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any, TypeVar, cast

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from .loader import DataLoaderShard
from .loaders import copy_with, index_attribute, index_sampler, is_stream
from .samplers import SkippedBatches
from .stand_in import StandIn

L = TypeVar("L", bound="DataLoader[Any]")


def skip_first_batches(dataloader: L, num_batches: int = 0) -> L:
    """A loader whose passes leave out their first batches, without fetching them where a sampler chooses samples.

    Random states are as if the sampler had chosen these batches: the others are those that a whole pass would have
    given. What the dataset and the script would have drawn for them is not drawn, except where the state of a pass has
    been loaded into `dataloader`: the first pass then goes on in that one, whatever its number of batches was, and with
    `num_batches` equal to it nothing is missing. `dataloader` itself has whole passes again after that.

    Where workers read an iterable dataset that is not prepared, they take turns from the first one again.

    Args:
        dataloader: a prepared loader, or another DataLoader.
        num_batches: counted from the epoch's start, for each process. All of them or more leave an empty pass.
    """
    if not isinstance(dataloader, DataLoader):
        raise TypeError(f"skip_first_batches: dataloader is a {type(dataloader).__name__}; it must be a DataLoader")
    if not isinstance(num_batches, int) or num_batches < 0:
        raise ValueError(f"skip_first_batches: num_batches={num_batches!r}; it must be a whole number, 0 or more")
    if isinstance(dataloader, DataLoaderShard):
        skipping = copy.copy(dataloader)
        skipping.__dict__["skipped"] = (dataloader.skipped or 0) + num_batches
        return skipping
    if is_stream(dataloader):
        return cast(L, copy_with(dataloader, dataset=_SkippedStream(dataloader, num_batches)))
    batches = SkippedBatches(index_sampler(dataloader), num_batches)
    return cast(L, copy_with(dataloader, **{index_attribute(dataloader): batches}))


class _SkippedStream(StandIn, IterableDataset[Any]):
    """The dataset of `loader` without the samples of its first `count` batches."""

    stands_for = "dataset"

    def __init__(self, loader: DataLoader[Any], count: int) -> None:
        self.dataset: Any = loader.dataset
        self.count, self.size = count, loader.batch_size or 1

    def __iter__(self) -> Iterator[Any]:
        count, info = self.count, get_worker_info()
        if info is not None:  # workers take turns
            count = count // info.num_workers + (info.id < count % info.num_workers)
        return itertools.islice(iter(self.dataset), count * self.size, None)

    state_dict = load_state_dict = None  # it would leave them out again

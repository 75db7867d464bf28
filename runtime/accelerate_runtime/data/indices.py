"""An index sampler that begins at a later batch, and knows again what it gave before."""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from torch.utils.data import (
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from .samplers import BatchSamplerShard, SkippedBatches, is_plain_batch_sampler
from .seedable import SeedableRandomSampler

_REPEATABLE = (
    SequentialSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    DistributedSampler,
    SeedableRandomSampler,
)

Checksum = tuple[int, int]  # of how many items, and the sum


def is_repeatable(indices: Any) -> bool:
    """Whether `indices` gives the same again for the same random states, whatever the script draws in between."""
    while isinstance(indices, (BatchSamplerShard, SkippedBatches)) or is_plain_batch_sampler(indices):
        indices = indices.sampler if is_plain_batch_sampler(indices) else indices.batches
    return type(indices) in _REPEATABLE


class IndicesFrom:
    """An index sampler over `indices` whose first pass leaves out `first` items; later ones are whole.

    Args:
        expected: the checksum that must come out.
        strict: there must be as many as `first`.

    Where `indices` is of unknown make it keeps a checksum of what it gave, and compares it with `expected`.
    """

    def __init__(self, indices: Any, first: int = 0, expected: Checksum | None = None, strict: bool = True) -> None:
        self.indices, self.first, self.expected, self.strict = indices, first, expected, strict
        self.watched = not is_repeatable(indices)
        self.checksum: Checksum | None = None

    def __iter__(self) -> Iterator[Any]:
        return self._pass(self.watch(iter(self.indices)))

    def __len__(self) -> int:
        return len(self.indices)

    def _pass(self, items: Iterator[Any]) -> Iterator[Any]:
        self.skip(items)
        yield from items

    def skip(self, items: Iterator[Any]) -> None:
        """Leave out the first items of a pass, once."""
        first, self.first = self.first, 0
        for number in range(first):
            if next(items, None) is None:
                if not self.strict:
                    return
                raise ValueError(
                    f"a pass was to go on after batch {first}, but its sampler ended after {number}: is it the sampler "
                    "(and the dataset) that the state was saved with?"
                )

    def watch(self, items: Iterator[Any]) -> Iterator[Any]:
        """A pass over `items`, with the checksum kept where it is needed."""
        return self._checked(items) if self.watched else items

    def _checked(self, items: Iterator[Any]) -> Iterator[Any]:
        total = 0
        for count, item in enumerate(items, 1):
            with suppress(ValueError):  # something else than numbers and strings
                total = zlib.crc32(marshal.dumps(item, 0), total)
            self.checksum = (count, total)
            if self.expected is not None and self.expected[0] == count:
                if self.expected[1] != total:
                    raise ValueError(_NOT_THE_SAME.format(count))
                self.expected = None
            yield item


_NOT_THE_SAME = (
    "the loader cannot go on where it was: its sampler does not give the same first {} items again. It draws from "
    "random generators in the middle of a pass, between what the script draws, or from one that is out of sight. Have "
    "it draw its order where a pass begins, or from a generator that is an attribute of the sampler; or choose the "
    "place yourself by skip_first_batches(loader, n), which starts the pass again and leaves n batches out."
)

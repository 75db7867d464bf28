"""A random sampler whose order can be told from a seed and the epoch."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler

from ..collectives import broadcast_object_list
from .loaders import copy_with, index_attribute


class SeedableRandomSampler(RandomSampler):
    """A RandomSampler whose order is a function of its seed and the epoch, whatever was drawn before.

    Args:
        data_seed: the seed; None takes the one that torch was seeded with.

    A prepared loader numbers its passes and sets `epoch` where one begins; its `set_epoch` chooses the next number.
    """

    def __init__(self, *args: Any, data_seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial_seed = torch.initial_seed() if data_seed is None else data_seed
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator()
        generator.manual_seed((self.initial_seed + self.epoch) % 2**64)
        yield from RandomSampler(self.data_source, self.replacement, self._num_samples, generator)
        self.epoch += 1

    def share_seed(self) -> None:
        """Take the main process's seed."""
        (self.initial_seed,) = broadcast_object_list([self.initial_seed])

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next pass gives."""
        self.epoch = epoch


def with_seedable_sampler(loader: DataLoader[Any], seed: int | None) -> DataLoader[Any]:
    """A loader of the same settings whose RandomSampler is replaced; `loader` itself where it has none."""
    attribute = index_attribute(loader)
    holder: Any = getattr(loader, attribute)
    own = getattr(holder, "sampler", holder)
    if not isinstance(own, RandomSampler) or isinstance(own, SeedableRandomSampler):
        return loader
    sampler = SeedableRandomSampler(own.data_source, own.replacement, own._num_samples, data_seed=seed)
    replaced: dict[str, Any] = {attribute: sampler, "sampler": sampler}
    if own is not holder:
        replaced[attribute] = copy.copy(holder)
        replaced[attribute].sampler = sampler
    return copy_with(loader, **replaced)


def seedable_samplers(loader: DataLoader[Any]) -> list[SeedableRandomSampler]:
    """Those of `loader`."""
    places = (loader.sampler, getattr(loader.batch_sampler, "sampler", None), getattr(loader.sampler, "sampler", None))
    return list({id(sampler): sampler for sampler in places if isinstance(sampler, SeedableRandomSampler)}.values())

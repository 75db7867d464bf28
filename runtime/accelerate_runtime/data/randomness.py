"""Samplers that draw alike on every process, whatever the processes drew before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from ..random import ForkedRandomness, share_generator, shared_seed
from .samplers import SkippedBatches, is_plain_batch_sampler
from .seedable import SeedableRandomSampler

_DRAW_ONCE = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


def in_step(batches: Any) -> Callable[[Any], Iterator[Any]]:
    """The way to iterate `batches` so that every process gets the same: a replacement of `iter` for it.

    What cannot draw is left alone. torch's own samplers get a generator in the main process's state, and then give the
    order that one process would have seen. Anything else runs in random state of its own.
    """
    while isinstance(batches, SkippedBatches):
        batches = batches.batches
    sampler = batches.sampler if is_plain_batch_sampler(batches) else batches
    if type(sampler) is SequentialSampler:
        return iter
    if type(sampler) is SeedableRandomSampler:
        return lambda source: _with_seed(source, sampler)
    if type(sampler) in _DRAW_ONCE:
        return lambda source: _with_generator(source, sampler)
    return _forked


def _with_seed(source: Any, sampler: SeedableRandomSampler) -> Iterator[Any]:
    sampler.share_seed()
    yield from source


def _with_generator(source: Any, sampler: Any) -> Iterator[Any]:
    own = sampler.generator
    if own is not None:
        share_generator(own)
        yield from source
        return
    generator = torch.Generator()
    generator.manual_seed(shared_seed())
    grouped = is_plain_batch_sampler(source) and not source.drop_last
    iterator = iter(sampler if grouped else source)
    sampler.generator = generator  # the sampler looks at it once, when it gives its first index
    try:
        items = chain(list(islice(iterator, 1)), iterator)
    finally:
        sampler.generator = None
    if grouped:  # as BatchSampler does, but of the list that the sampler's generator gives index by index
        indices, size = chain(islice(items, 1), getattr(iterator, "gi_yieldfrom", None) or (), items), source.batch_size
        yield from iter(lambda: list(islice(indices, size)), [])
    else:
        yield from items


def _forked(source: Any) -> Iterator[Any]:
    for holder in (source, getattr(source, "sampler", None)):
        if isinstance(holder, SeedableRandomSampler):
            holder.share_seed()
        if isinstance(generator := getattr(holder, "generator", None), torch.Generator):
            share_generator(generator)
    forked = ForkedRandomness(shared_seed())
    with forked():
        iterator = iter(source)
    while True:
        with forked():
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item

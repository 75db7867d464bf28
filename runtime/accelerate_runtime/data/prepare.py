"""From a script's DataLoader to a prepared one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset

from ..accumulation import GradientState
from ..division import Division
from ..plugins import DataLoaderConfiguration
from ..random import ForkedRandomness, draw_alike, shared_seed, synchronize_rng_states
from ..same_batches import SameBatches
from ..structures import send_to_device
from ..topology import Topology
from .fetching import draw_apart
from .loader import DataLoaderShard
from .loaders import copy_with, index_attribute, index_sampler, is_stream
from .parcels import TaggedCollate
from .randomness import in_step
from .samplers import BatchSamplerShard, Share, size_of_part
from .seedable import with_seedable_sampler
from .stateful import as_stateful
from .streams import IterableDatasetShard


def prepare_loader(
    loader: DataLoader[Any],
    division: Division,
    gradient_state: GradientState,
    config: DataLoaderConfiguration,
    *,
    move: bool = True,
    rng_types: Iterable[str] = ("generator",),
    slice_fn: Callable[..., Any] | None = None,
    deliver: Callable[[Any, torch.device, bool], Any] | None = None,
) -> DataLoaderShard:
    """A loader over this process's part of `loader`.

    One whose sampler already deals between processes (it has `num_replicas` and `rank`, like DistributedSampler) keeps
    its own division.

    Args:
        move: move batches to the process's device.
        rng_types: random states to share at the start of each pass, beside those of the samplers.
        slice_fn: see `Accelerator.prepare_data_loader`.
        deliver: brings a batch to the device, where moving its tensors is not enough.

    Raises:
        ValueError: `split_batches` with a batch size that the processes do not divide; a distributed sampler made for
            another number of processes, or under `dispatch_batches`.
    """
    if config.use_seedable_sampler:
        loader = with_seedable_sampler(loader, config.data_seed)
    place, alone = division.place, len(division.parts) == 1
    part = _Part(loader) if alone else _part_of(loader, division, config, slice_fn)
    if division.shared:
        part.prepare_pass.append(lambda: draw_alike(division))
    others = [name for name in rng_types if name != "generator"]
    if others and not alone:
        part.prepare_pass.append(lambda: synchronize_rng_states(others))
    kind = as_stateful(part.kind) if config.use_stateful_dataloader else part.kind
    return kind(
        loader,
        part.source,
        gradient_state,
        device=place.device if move and place.device.type != "cpu" else None,
        non_blocking=config.non_blocking,
        deliver=deliver or send_to_device,
        processes=place.num_processes,
        process_index=place.process_index,
        split_batches=config.split_batches,
        share=part.share,
        dealing=part.dealing,
        prepare_pass=part.prepare_pass,
        inspect=SameBatches(division) if division.shared else None,
    )


@dataclass
class _Part:
    """This process's part of a loader, in the terms of DataLoaderShard's arguments."""

    source: Any
    dealing: BatchSamplerShard | IterableDatasetShard | None = None
    share: Callable[[int], Share | None] | None = None
    prepare_pass: list[Callable[[], object]] = field(default_factory=list)
    kind: type[DataLoaderShard] = DataLoaderShard


def _part_of(
    loader: DataLoader[Any], division: Division, config: DataLoaderConfiguration, slice_fn: Callable[..., Any] | None
) -> _Part:
    place = division.place
    own_sampler = _own_dealing(loader, place)
    if config.dispatch_batches:
        from .dispatch import DataLoaderDispatcher, dispatched  # rare, and not light

        source = dispatched(loader, division, config, slice_fn, own_sampler)
        return _Part(source, source.dealing, source.share, kind=DataLoaderDispatcher)
    if own_sampler is not None:
        return _Part(loader, share=_share_of_distributed_sampler(loader, own_sampler, place))
    if is_stream(loader):
        return _shard_stream(loader, place, config)
    return _shard_batches(loader, place, config)


def _shard_batches(loader: DataLoader[Any], place: Topology, config: DataLoaderConfiguration) -> _Part:
    batches = index_sampler(loader)
    shard = BatchSamplerShard(
        batches,
        place.num_processes,
        place.process_index,
        split=config.split_batches,
        even=config.even_batches,
        atoms=loader.batch_sampler is None,
        advance=in_step(batches),
    )
    source = copy_with(loader, **{index_attribute(loader): shard})
    draw_apart(source, place.process_index)
    return _Part(source, shard, shard.share)


def _shard_stream(loader: DataLoader[Any], place: Topology, config: DataLoaderConfiguration) -> _Part:
    size, count = loader.batch_size, place.num_processes
    if config.split_batches and size is not None:
        size = size_of_part(size, count)
    shard = IterableDatasetShard(
        cast("IterableDataset[Any]", loader.dataset),
        count,
        place.process_index,
        size=size,
        drop_last=loader.drop_last,
        even=config.even_batches,
    )
    replaced: dict[str, Any] = {"dataset": shard, "collate_fn": TaggedCollate(loader.collate_fn)}
    if size is not None:
        replaced["batch_sampler"] = BatchSampler(loader.sampler, size, drop_last=False)
        replaced["drop_last"] = False  # the shard has dropped it
    if loader.generator is None:
        replaced["generator"] = torch.Generator()
    source = copy_with(loader, **replaced)

    def begin() -> None:
        """Have the stream draw alike everywhere: in this process, and in workers, which the generator seeds."""
        seed = shared_seed()
        (source.generator or torch.Generator()).manual_seed(seed)
        if source.num_workers == 0:
            shard.around = ForkedRandomness(seed)

    return _Part(source, shard, prepare_pass=[begin])


def _own_dealing(loader: DataLoader[Any], place: Topology) -> Any:
    """The sampler of `loader` that deals between processes, or None."""
    batches = getattr(loader, "batch_sampler", None)
    for sampler in (getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None)):
        replicas = getattr(sampler, "num_replicas", None)
        if isinstance(replicas, int) and hasattr(sampler, "rank"):
            if replicas != place.num_processes:
                raise ValueError(
                    f"the loader's {type(sampler).__name__} deals between {replicas} processes, but there are "
                    f"{place.num_processes}: leave the sampler out (prepare() shards the loader), or make it for "
                    f"num_replicas={place.num_processes}."
                )
            return sampler
    return None


def _share_of_distributed_sampler(
    loader: DataLoader[Any], sampler: Any, place: Topology
) -> Callable[[int], Share | None] | None:
    """How the last batch is dealt under a DistributedSampler: it pads by giving the last processes one sample more."""
    size = loader.batch_size
    if type(sampler) is not DistributedSampler or sampler.drop_last or size is None:
        return None
    own, count = sampler.num_samples, place.num_processes
    padding = own * count - len(sampler.dataset)  # type: ignore[arg-type]
    last = -(-own // size) - 1
    rows = own - last * size
    if loader.drop_last and rows != size:
        return None
    share = Share((rows,) * count, tuple(rows - (index >= count - padding) for index in range(count)))
    return lambda number: share if number == last else None

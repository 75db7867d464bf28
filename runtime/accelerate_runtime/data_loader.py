"""Prepared loaders, under the name that scripts import them by (`from accelerate_runtime.data_loader import …`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.data import DataLoader

from . import arguments, division, topology
from .accumulation import GradientState
from .data import DataLoaderShard, SeedableRandomSampler, prepare_loader, skip_first_batches
from .data.dispatch import DataLoaderDispatcher
from .plugins import DataLoaderConfiguration

__all__ = [
    "DataLoaderDispatcher",
    "DataLoaderShard",
    "SeedableRandomSampler",
    "prepare_data_loader",
    "skip_first_batches",
]


def prepare_data_loader(
    dataloader: DataLoader[Any],
    device: torch.device | str | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
    split_batches: bool = False,
    put_on_device: bool = False,
    rng_types: Iterable[str] | None = None,
    dispatch_batches: bool | None = None,
    even_batches: bool = True,
    slice_fn_for_dispatch: Callable[..., Any] | None = None,
    use_seedable_sampler: bool = False,
    data_seed: int | None = None,
    non_blocking: bool = False,
    use_stateful_dataloader: bool = False,
    torch_device_mesh: Any = None,
) -> DataLoaderShard:
    """`Accelerator.prepare_data_loader` for who has no Accelerator.

    Args:
        device: where batches go, with `put_on_device`; None is this process's device.
        num_processes, process_index: other ones than there are. Then the loader must not need the other processes
            (sequential samplers, say).
        rng_types: random states to share at the start of each pass; None shares those of samplers.
        torch_device_mesh: None; batches are dealt as the latest Accelerator deals them.

    The other arguments are those of DataLoaderConfiguration and `Accelerator.prepare_data_loader`.
    """
    arguments.refuse_unsupported({"torch_device_mesh": torch_device_mesh}, "prepare_data_loader")
    dealt = division.current()
    if num_processes is not None or process_index is not None:
        place = topology.current()
        place = dataclasses.replace(
            place,
            num_processes=place.num_processes if num_processes is None else num_processes,
            process_index=place.process_index if process_index is None else process_index,
        )
        dealt = division.each_its_own(place)
    if device is not None:
        dealt = dataclasses.replace(dealt, place=dataclasses.replace(dealt.place, device=torch.device(device)))
    config = DataLoaderConfiguration(
        split_batches=split_batches,
        dispatch_batches=dispatch_batches,
        even_batches=even_batches,
        use_seedable_sampler=use_seedable_sampler,
        data_seed=data_seed,
        non_blocking=non_blocking,
        use_stateful_dataloader=use_stateful_dataloader,
    )
    return prepare_loader(
        dataloader,
        dealt,
        GradientState(),
        config,
        move=put_on_device,
        rng_types=arguments.read_rng_types(rng_types),
        slice_fn=slice_fn_for_dispatch,
    )

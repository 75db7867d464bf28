"""gather_for_metrics: one row per sample of the dataset, and no row of padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import collectives
from .accumulation import GradientState
from .structures import map_tensors
from .topology import Topology

if TYPE_CHECKING:
    from .data.samplers import Share


def gather_for_metrics(data: Any, state: GradientState, place: Topology, use_gather_object: bool = False) -> Any:
    """See `Accelerator.gather_for_metrics`.

    Raises:
        ValueError: some of the current batch is padding, and what was passed has not one row per sample: a mean over
            the batch counts the padding in.
    """
    if place.num_processes == 1:
        return data
    if use_gather_object or not _all_tensors(data):
        return _gather_objects(data, state)
    return map_tensors(lambda tensor: _gather_rows(tensor, state, place), data)


def _gather_rows(tensor: torch.Tensor, state: GradientState, place: Topology) -> torch.Tensor:
    rows = tensor.shape[0] if tensor.ndim else 0
    share = _share_for(rows, state, place.process_index)
    if share is None or not (share.padded or share.uneven):
        return collectives.gather(tensor)  # type: ignore[no-any-return]
    if tensor.ndim == 0:
        return torch.stack(_of_real_batches(list(collectives.gather(tensor)), share, "a tensor without dimensions"))
    if share.sizes[place.process_index] != rows:
        raise ValueError(
            f"gather_for_metrics: the tensor has {rows} rows, but this process has {share.sizes[place.process_index]} "
            "samples of a last batch that is partly padding, so it is not known which rows to leave out. Gather one "
            "row per sample, or use gather()."
        )
    longest = max(share.sizes)
    if rows < longest:
        tensor = torch.cat([tensor, tensor.new_zeros((longest - rows, *tensor.shape[1:]))])
    parts = collectives.gather(tensor).split(longest)
    return torch.cat([part[:real] for part, real in zip(parts, share.real, strict=True)])


def _gather_objects(data: Any, state: GradientState) -> Any:
    parts = collectives.of_all_parts(data)
    latest = state.active_pass.share if state.active_pass is not None else None
    if not all(isinstance(part, (list, tuple)) for part in parts):
        return _of_real_batches(parts, latest, f"one object a process ({type(data).__name__})")
    sizes = tuple(map(len, parts))
    for this in reversed(state.passes):
        if this.share is not None and this.share.sizes == sizes:
            parts = [part[:real] for part, real in zip(parts, this.share.real, strict=True)]
            break
    else:
        parts = _of_real_batches(parts, latest, f"lists of {' and '.join(map(str, sizes))} items")
    return [item for part in parts for item in part]


def _of_real_batches(parts: list[Any], share: Share | None, what: str) -> list[Any]:
    """`parts`, one a process, without those of processes whose whole batch is padding."""
    if share is None:
        return parts
    if any(0 < real < size for real, size in zip(share.real, share.sizes, strict=True)):
        raise ValueError(
            f"gather_for_metrics: {what}, in a last batch that is partly padding (of {share.sizes} samples per process "
            f"{share.real} are real): it cannot be told how much of it comes from padding. Gather one row per sample "
            "(a loss with reduction='none', say), or use gather() or gather_object() where padding does not matter."
        )
    return [part for part, real in zip(parts, share.real, strict=True) if real]


def _share_for(rows: int, state: GradientState, index: int) -> Share | None:
    """How the current batch was dealt: that of the latest loader whose batch has as many rows, or just the latest."""
    for this in reversed(state.passes):
        if this.share is not None and this.share.sizes[index] == rows:
            return this.share
    return state.active_pass.share if state.active_pass is not None else None


def _all_tensors(data: Any) -> bool:
    try:
        map_tensors(lambda tensor: tensor, data)
    except TypeError:
        return False
    return True

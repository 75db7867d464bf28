"""A batch cut into micro-batches, and what comes out of these put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

_PLAIN = (torch.Tensor, bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class MicroBatches:
    """The inputs of a forward.

    Attributes:
        inputs: positional and keyword arguments of each micro-batch.
        sizes: how many samples each has.
        sums: losses are sums over samples, not means.
    """

    inputs: list[tuple[Any, Any]]
    sizes: list[int]
    sums: bool = False

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self.sizes)

    @property
    def weights(self) -> list[float]:
        """What the loss of each counts for in that of the batch."""
        return [1.0 if self.sums else size / sum(self.sizes) for size in self.sizes]


def cut(args: Any, kwargs: Any, number_of: Callable[[int], int], sums: bool) -> MicroBatches:
    """Cut the tensors of a forward's arguments along their first dimension; all else goes to each.

    The first tensor says how many samples the batch has.

    Args:
        number_of: into how many micro-batches that many samples are cut.
        sums: losses are sums over samples.

    Raises:
        ValueError: there is no tensor that could be cut.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    _check_plain("was called with", leaves)
    size = next((len(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.ndim), None)
    if not size:
        raise ValueError(
            "the prepared model was called without a tensor that has samples along its first dimension: a pipeline "
            "cuts the batch there into micro-batches."
        )
    number = number_of(size)
    sizes = [size // number + (index < size % number) for index in range(number)]
    parts = [
        torch.split(leaf, sizes)
        if isinstance(leaf, torch.Tensor) and leaf.ndim and len(leaf) == size
        else [leaf] * number
        for leaf in leaves
    ]
    return MicroBatches([pytree.tree_unflatten([part[i] for part in parts], spec) for i in range(number)], sizes, sums)


def join(outputs: list[Any], micro_batches: MicroBatches) -> Any:
    """The output of the whole batch: tensors joined along the first dimension, losses (floats without dimensions)
    averaged by the number of samples, or summed, all else as the first micro-batch has it.

    Raises:
        RuntimeError: a tensor is neither.
    """
    flat = [pytree.tree_flatten(output) for output in outputs]
    _check_plain("gives", flat[0][0])
    if any(spec != flat[0][1] for _, spec in flat):
        raise RuntimeError("pipeline: the model's output has another structure for another micro-batch")
    joined = [_join([leaves[index] for leaves, _ in flat], micro_batches) for index in range(len(flat[0][0]))]
    return pytree.tree_unflatten(joined, flat[0][1])


def _join(values: list[Any], micro_batches: MicroBatches) -> Any:
    if not isinstance(values[0], torch.Tensor):
        return values[0]
    values = [value.detach() for value in values]
    if values[0].ndim == 0 and values[0].is_floating_point():
        return torch.stack([value * weight for value, weight in zip(values, micro_batches.weights, strict=True)]).sum()
    if all(value.ndim and len(value) == size for value, size in zip(values, micro_batches.sizes, strict=True)):
        return torch.cat(values)
    raise RuntimeError(
        f"pipeline: the model's output has a tensor of shape {tuple(values[0].shape)} for a micro-batch of "
        f"{micro_batches.sizes[0]} samples: those of micro-batches can be put together only where they have the "
        "samples along their first dimension, or are a loss."
    )


def spread(gradient: torch.Tensor, micro_batches: MicroBatches) -> list[torch.Tensor]:
    """The gradients of the micro-batches' outputs, from that of what `join` made of them."""
    if gradient.ndim == 0:
        return [gradient * weight for weight in micro_batches.weights]
    return list(torch.split(gradient, micro_batches.sizes))


def _check_plain(does: str, leaves: list[Any]) -> None:
    """Raise TypeError where tensors may be hidden in an object that cannot be looked into."""
    for leaf in leaves:
        if not isinstance(leaf, _PLAIN):
            raise TypeError(
                f"pipeline: the model {does} an object of {type(leaf).__name__}, which cannot be cut into "
                "micro-batches: use tensors, plain values, and tuples, lists and dicts of these."
            )

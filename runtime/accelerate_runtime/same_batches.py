"""Whether the processes that work on one model together were given the same.

Other batches there would train on sums of what belongs to different samples (tensor parallelism), or on labels of other
inputs (pipelines), without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .division import Division
from .structures import map_tensors
from .waiting import together

_ADVICE = (
    "They need the same data: have them read, or draw, the same dataset (`set_seed(n)` before random numbers make it), "
    "pass its loader to prepare(), and seed alike what else draws inputs. Only data-parallel copies get other batches."
)


class SameBatches:
    """The batches of a pass, of which the first is compared."""

    def __init__(self, division: Division) -> None:
        self.division = division

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """`batches`; every process must begin its pass.

        Raises:
            ValueError: the first one differs between the processes that work together.
        """
        for batch in batches:
            check_same(self.division, batch, "the first batch of a prepared loader")
            yield batch
            break
        yield from batches


def check_first_inputs(model: nn.Module, division: Division) -> None:
    """Compare what `model` is called with first; the processes that work on it together must all call it."""

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def compare(_: nn.Module, args: Any, kwargs: Any) -> None:
        handle.remove()
        check_same(division, (args, kwargs), f"what {type(model).__name__} was first called with")

    handle = model.register_forward_pre_hook(compare, with_kwargs=True, prepend=True)


def check_same(division: Division, data: Any, what: str) -> None:
    """Compare the tensors in `data` between the processes that work on one model together, who all call this.

    Args:
        division: who these are.
        what: how a message calls it.

    Raises:
        ValueError: they differ, by more than a device's rounding.
    """
    mine = _digests(data)
    group = division.together
    everyone: list[Any] = [None] * dist.get_world_size(group)
    together("comparing batches", dist.all_gather_object, everyone, mine, group=group)
    ranks = dist.get_process_group_ranks(group)
    for rank, theirs in zip(ranks, everyone, strict=True):
        if not _alike(everyone[0], theirs):
            raise ValueError(
                f"{what} is not the same on processes {ranks[0]} and {rank}, which work on one copy of the model "
                f"together. {_ADVICE}"
            )


def _digests(data: Any) -> list[tuple[tuple[int, ...], float, float]]:
    """Of each tensor its shape, and two numbers that tell it from one with other values, or in another order."""
    found: list[tuple[tuple[int, ...], float, float]] = []

    def note(tensor: torch.Tensor) -> None:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided or tensor.is_meta:
            return
        values = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
        values = values.flatten().to("cpu", torch.float64)
        places = torch.arange(values.numel(), dtype=torch.float64)
        found.append((tuple(tensor.shape), float(values.abs().sum()), float(values @ places.cos())))

    map_tensors(note, data, strict=False)
    return found


def _alike(one: list[tuple[tuple[int, ...], float, float]], other: list[tuple[tuple[int, ...], float, float]]) -> bool:
    if [shape for shape, *_ in one] != [shape for shape, *_ in other]:
        return False
    for (_, size, ordered), (_, other_size, other_ordered) in zip(one, other, strict=True):
        allowed = 1e-4 * size + 1e-12
        if abs(size - other_size) > allowed or abs(ordered - other_ordered) > allowed:
            return False  # not where one is NaN: those are for others to find
    return True

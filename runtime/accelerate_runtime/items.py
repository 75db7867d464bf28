"""Losses that are sums over items (tokens, samples): their gradients are divided by how many there were, everywhere.

How many items a step sees is known only where it ends: after the last micro-batch of its window, on every process. So
losses are not divided as they come; the gradients are, once, before they are clipped or used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from . import division, topology
from .collectives import reduce
from .devices import kind_of
from .precision.scaling import gradients_of, parameters_of

if TYPE_CHECKING:
    from .optimizer import AcceleratedOptimizer

Number = int | float | torch.Tensor


def check_number(given: Any) -> Number:
    """A number of items: 0 or more, or a tensor of one element.

    Raises:
        TypeError, ValueError: it is neither.
    """
    if isinstance(given, torch.Tensor):
        if given.numel() != 1:
            raise ValueError(f"backward(num_items=...): a tensor of {given.numel()} elements; pass their number")
        return given.detach().reshape(()).to(torch.float64 if kind_of(given.device).float64 else torch.float32)
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(f"backward(num_items={given!r}): pass the number of items (tokens, samples) summed in the loss")
    if not (given >= 0 and math.isfinite(given)):
        raise ValueError(f"backward(num_items={given!r}): must be 0 or more")
    return given


class Items:
    """How many items the gradients of one optimizer come from, since they were last cleared or used.

    Attributes:
        others: how many backward passes had been made without a number of items.
        divided: the gradients were divided already, for the step that comes.
    """

    __slots__ = ("divided", "number", "others")

    def __init__(self, number: Number, others: int, divided: bool = False) -> None:
        self.number, self.others, self.divided = number, others, divided

    def state(self) -> tuple[Number, int, bool]:
        """What makes the same object again."""
        return self.number, self.others, self.divided

    def divide(self, optimizer: torch.optim.Optimizer, others: int) -> None:
        """Divide the gradients by the number of items on all processes; once."""
        if self.divided:
            return
        if others != self.others:
            refuse_mixture()
        self.divided = True
        processes, number = division.current().numbers[0], self.number
        if processes > 1:
            number = reduce(torch.as_tensor(number, dtype=torch.float64, device=topology.current().device), "sum")
        factor: Any  # the processes' gradients were averaged: they are `processes` times too small for a sum
        if isinstance(number, torch.Tensor):
            factor = torch.where(number > 0, processes / number, 0.0)
        else:
            factor = processes / number if number else 0.0
        _multiply(list(gradients_of(optimizer)), factor)


def _multiply(gradients: list[torch.Tensor], factor: torch.Tensor | float) -> None:
    alike: dict[Any, list[torch.Tensor]] = {}
    for gradient in gradients:  # torch takes those of one device, spread over one mesh
        alike.setdefault((gradient.device, getattr(gradient, "device_mesh", None)), []).append(gradient)
    for (device, _), group in alike.items():
        torch._foreach_mul_(group, factor.to(device) if isinstance(factor, torch.Tensor) else factor)


@contextmanager
def counting(number: Number, optimizers: Sequence[AcceleratedOptimizer]) -> Iterator[None]:
    """Around a backward pass: the optimizers whose gradients it adds to count `number` items more."""
    watches = [_Watch(optimizer, alone=len(optimizers) == 1) for optimizer in optimizers]
    yield
    reached = [watch for watch in watches if watch.reached()]
    if not reached:
        raise ValueError(
            "backward(num_items=...): no prepared optimizer has parameters that got a gradient, so that nobody would "
            "divide it by the number of items: prepare() the optimizer first."
        )
    for watch in reached:
        watch.optimizer.count_items(number, watch.held)


class _Watch:
    """Whether a backward pass adds to an optimizer's gradients."""

    def __init__(self, optimizer: AcceleratedOptimizer, alone: bool) -> None:
        self.optimizer, self.alone = optimizer, alone
        self.held = any(True for _ in gradients_of(optimizer.optimizer))
        self._before = [] if alone else [(p, p.grad, _version(p.grad)) for p in parameters_of(optimizer.optimizer)]

    def reached(self) -> bool:
        return self.alone or any(p.grad is not g or _version(p.grad) != v for p, g, v in self._before)


def _version(gradient: torch.Tensor | None) -> int:
    """Changes when something is added in place."""
    return -1 if gradient is None else gradient._version


def refuse_mixture() -> None:
    """Raise, for gradients of losses with and without a number of items."""
    raise ValueError(_MIXED)


_MIXED = (
    "backward() was called with num_items and without it before one optimizer step, or after the gradients were "
    "clipped or unscaled, which divides them: pass num_items, and the sum of the losses, to each backward() before "
    "a step."
)

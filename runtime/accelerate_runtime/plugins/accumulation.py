"""How gradients are accumulated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .base import KwargsHandler


@dataclass
class GradientAccumulationPlugin(KwargsHandler):
    """How gradients are accumulated under `accelerator.accumulate()`.

    Each loss is divided by `num_steps`, also where an epoch ends within a window: the gradients of such a short window
    are smaller than those of a mean. `accelerator.backward(loss, num_items=n)` divides by the items there were instead.

    Args:
        num_steps: micro-batches per optimizer step, 1 or more.
        adjust_scheduler: a prepared scheduler counts the micro-batches in between, without changing the rate.
        sync_with_dataloader: the last batch of a loader ends the window, however full it is.
        sync_each_batch: exchange gradients after each micro-batch (saves memory on some strategies, costs time).
    """

    num_steps: int = field(default=1)
    adjust_scheduler: bool = True
    sync_with_dataloader: bool = True
    sync_each_batch: bool = False

    def __post_init__(self) -> None:
        self.num_steps = check_steps(self.num_steps)


def check_steps(value: Any) -> int:
    """A number of accumulation steps.

    Raises:
        ValueError: it is not a whole number of 1 or more.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"gradient_accumulation_steps={value!r}: must be a whole number, 1 or more")
    return value

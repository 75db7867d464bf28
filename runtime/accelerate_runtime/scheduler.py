"""The prepared learning-rate scheduler."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from .accumulation import GradientState
from .optimizer import AcceleratedOptimizer

logger = logging.getLogger(__name__)


class AcceleratedScheduler:
    """A scheduler that steps when its optimizer did.

    One call advances it by `num_processes` steps (a schedule counted over the unsharded loader then ends with the
    training), or by one with `split_batches`. `ReduceLROnPlateau` judges a metric: it always steps once a call. A
    schedule of a fixed length (OneCycleLR) that has ended is not stepped on, which a warning says once.

    Args:
        optimizers: the prepared optimizers; a list that grows, for they may be prepared later.
    """

    def __init__(
        self,
        scheduler: Any,
        optimizers: Sequence[AcceleratedOptimizer],
        gradient_state: GradientState,
        *,
        repeats: int = 1,
        step_with_optimizer: bool = True,
    ) -> None:
        self.scheduler = scheduler
        self.gradient_state = gradient_state
        self.step_with_optimizer = step_with_optimizer
        self._optimizers = optimizers
        self._repeats = 1 if isinstance(scheduler, ReduceLROnPlateau) else repeats
        self._told = False

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Advance the schedule, unless the optimizer's step was left out (accumulation, overflow)."""
        scheduler, state = self.scheduler, self.gradient_state
        if not self.step_with_optimizer:
            scheduler.step(*args, **kwargs)
            return
        if state.managed and not state.sync_gradients:
            if state.adjust_scheduler and hasattr(scheduler, "_step_count"):
                scheduler._step_count += 1
            return
        for optimizer in self._optimizers:
            if optimizer.step_was_skipped and self._is_of(optimizer):
                return
        total = getattr(scheduler, "total_steps", None)
        for _ in range(self._repeats):
            if total is None or scheduler._step_count <= total:
                scheduler.step(*args, **kwargs)
            elif not self._told:
                self._told = True
                logger.warning(
                    "%s was made for %s steps, and is stepped on: the learning rate stays",
                    type(scheduler).__name__,
                    total,
                )

    def _is_of(self, optimizer: AcceleratedOptimizer) -> bool:
        owner = getattr(self.scheduler, "optimizer", None)
        return owner is None or owner is optimizer or owner is optimizer.optimizer

    def get_last_lr(self) -> list[float]:
        """The rates that the scheduler last set, one per parameter group."""
        rates: list[float] = self.scheduler.get_last_lr()
        return rates

    def state_dict(self) -> dict[str, Any]:
        """The wrapped scheduler's state dict."""
        state: dict[str, Any] = self.scheduler.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state dict of the wrapped scheduler."""
        self.scheduler.load_state_dict(state_dict)

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler":  # not there yet: being unpickled
            raise AttributeError(name)
        return getattr(self.scheduler, name)

    def __repr__(self) -> str:
        return f"AcceleratedScheduler({self.scheduler!r})"

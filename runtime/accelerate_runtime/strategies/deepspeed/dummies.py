"""What a script passes where DeepSpeed's config says which optimizer or scheduler to make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch


class DummyOptim(torch.optim.Optimizer):
    """Stands for the optimizer of DeepSpeed's config until `prepare` puts that in its place.

    Args:
        params: parameters, or groups of them.
        lr, weight_decay, kwargs: what is filled in where the config says "auto" (betas, eps, …).
    """

    def __init__(self, params: Any, lr: float = 0.001, weight_decay: float = 0, **kwargs: Any) -> None:
        listed = list(params)
        super().__init__(listed, {"lr": lr, "weight_decay": weight_decay, **kwargs})
        self.params, self.lr, self.weight_decay, self.kwargs = listed, lr, weight_decay, kwargs

    def step(self, closure: Any = None) -> NoReturn:
        """Refused: it has nothing to step."""
        raise RuntimeError(
            "DummyOptim.step(): it stands for the optimizer of DeepSpeed's config: step the one that prepare() returned"
        )


class DummyScheduler:
    """Stands for the scheduler of DeepSpeed's config until `prepare` puts that in its place.

    The engine steps it with each optimizer step; `step()` of what `prepare` returns does nothing.

    Args:
        optimizer: the DummyOptim.
        total_num_steps, warmup_num_steps: of the training, as one process would count them; filled in where the config
            says "auto".
        lr_scheduler_callable: makes the scheduler from the engine's optimizer, where the config has none.
        kwargs: further values of the config's "auto".
    """

    def __init__(
        self,
        optimizer: Any,
        total_num_steps: int | None = None,
        warmup_num_steps: int = 0,
        lr_scheduler_callable: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.optimizer = optimizer
        self.total_num_steps, self.warmup_num_steps = total_num_steps, warmup_num_steps
        self.lr_scheduler_callable = lr_scheduler_callable
        self.kwargs = kwargs

    def step(self, *_: Any) -> NoReturn:
        """Refused: it has nothing to step."""
        raise RuntimeError(
            "DummyScheduler.step(): it stands for the scheduler of DeepSpeed's config: step the one that prepare() "
            "returned"
        )

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to load into."""

"""Local SGD: processes train apart, and average their models now and then."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from . import collectives
from .topology import DistributedType

if TYPE_CHECKING:
    from .accelerator import Accelerator


class LocalSGD:
    """A context in which gradients stay in their process, and models are averaged every `local_sgd_steps` steps.

        with LocalSGD(accelerator, model, local_sgd_steps=8) as local_sgd:
            for batch in loader:
                ...
                optimizer.step()
                local_sgd.step()

    They are averaged at the end of the block too. Averaged are parameters, and buffers of floating point (running
    statistics, which Accelerate leaves apart).

    Args:
        model: the prepared model.
        local_sgd_steps: calls of `step` between two averages.
        enabled: False trains as without; so does a single process.

    Raises:
        NotImplementedError: the model is spread by an engine other than data parallelism.
        ValueError: `local_sgd_steps` is not a whole number of 1 or more.
    """

    def __init__(
        self, accelerator: Accelerator, model: nn.Module, local_sgd_steps: int | None, enabled: bool = True
    ) -> None:
        kind = accelerator.distributed_type
        if kind != DistributedType.NO and not kind.startswith("MULTI_"):
            raise NotImplementedError(f"LocalSGD averages models that processes hold whole; under {kind} none does")
        if accelerator.state.strategy.division.shared:
            raise NotImplementedError("LocalSGD averages models that processes hold whole; under tp_size > 1 none does")
        self.enabled = enabled and accelerator.use_distributed
        if self.enabled and (type(local_sgd_steps) is not int or local_sgd_steps < 1):
            raise ValueError(f"local_sgd_steps={local_sgd_steps!r}: must be a whole number, 1 or more")
        self.accelerator, self.model, self.local_sgd_steps = accelerator, model, local_sgd_steps
        self.num_steps = 0
        self._apart: AbstractContextManager[Any] | None = None

    def __enter__(self) -> LocalSGD:
        if self.enabled:
            self._apart = self.accelerator.no_sync(self.model)
            self._apart.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._apart is not None:
            self._apart.__exit__(kind, error, trace)
            self._apart = None
            if error is None:  # else the others may not get here
                self._average()

    def step(self) -> None:
        """Count a step, and average the models where enough were made. Call it on every process."""
        self.num_steps += 1
        if self.enabled and self.num_steps % (self.local_sgd_steps or 1) == 0:
            self._average()

    @torch.no_grad()
    def _average(self) -> None:
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(collectives.reduce(tensor, "mean"))

"""What a strategy is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from ..plugins import KwargsHandler
from ..topology import Topology


class Strategy(ABC):
    """A thin adapter over an engine that spreads training.

    Args:
        place: this process's place.
        handlers: the `kwargs_handlers` of the Accelerator, by class.
    """

    def __init__(self, place: Topology, handlers: dict[type[KwargsHandler], KwargsHandler]) -> None:
        self.place = place
        self.handlers = handlers

    @abstractmethod
    def wrap(self, model: nn.Module, evaluation: bool) -> nn.Module:
        """`model`, which is on its device, ready to train (or, with `evaluation`, only to be evaluated)."""

    def unwrap(self, model: nn.Module) -> nn.Module:
        """The model that `wrap` was given."""
        return model

    def no_sync(self, model: nn.Module) -> AbstractContextManager[Any]:
        """A context in which a backward leaves gradients in this process."""
        return nullcontext()

    def clip_grad_norm(self, parameters: list[nn.Parameter], max_norm: float, norm_type: float) -> torch.Tensor:
        """Clip gradients to a global norm; returns the norm before, a tensor without dimensions."""
        return nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=norm_type)

    def clip_grad_value(self, parameters: Iterable[nn.Parameter], clip_value: float) -> None:
        """Clip each gradient to [-clip_value, clip_value]."""
        nn.utils.clip_grad_value_(parameters, clip_value)

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        """The whole state dict of an (unwrapped) model, on every process."""
        return model.state_dict()

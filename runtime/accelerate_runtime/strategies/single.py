"""One process: everything is as it was."""

from __future__ import annotations

from torch import nn

from .base import Strategy


class SingleProcess(Strategy):
    """Models stay what they are."""

    def wrap(self, model: nn.Module, evaluation: bool) -> nn.Module:
        return model

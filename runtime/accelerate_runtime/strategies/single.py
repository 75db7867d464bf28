"""One process: everything is as it was."""

from __future__ import annotations

from torch import nn

from .base import Strategy


class SingleProcess(Strategy):
    """Models stay what they are."""

    exchanges = False

    def wrap(self, model: nn.Module, evaluation: bool) -> nn.Module:
        """`model` itself."""
        return model

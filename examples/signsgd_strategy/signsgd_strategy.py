"""A way of spreading training, made outside of accelerate_runtime: signSGD with majority vote.

Each process sends the sign of its gradients only; a step follows the majority of them. After installing this package a
script is trained so by `Accelerator(strategy="signsgd")`, or unchanged under ACCELERATE_STRATEGY=signsgd.

Source: Bernstein et al., "signSGD with Majority Vote is Communication Efficient and Fault Tolerant", arXiv:1810.05291.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from accelerate_runtime import Strategy, StrategySetup


class SignSGD(Strategy):
    """Every process has the whole model; gradients become the sign that most processes' gradients have."""

    def __init__(self, setup: StrategySetup) -> None:
        super().__init__(setup)
        self.voting = True

    def wrap(self, model: nn.Module, evaluation: bool) -> nn.Module:
        """The model itself: its parameters vote wherever backward has added to their gradient."""
        if evaluation:
            return model
        if self.place.num_processes > 1:  # start from the same weights
            for tensor in [*model.parameters(), *model.buffers()]:
                dist.broadcast(tensor.detach(), 0)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.vote)
        return model

    def vote(self, parameter: torch.Tensor) -> None:
        """Replace a gradient by the sign of the sum of all processes' signs."""
        if not self.voting or parameter.grad is None:
            return
        signs = parameter.grad.sign()
        if self.place.num_processes > 1:
            dist.all_reduce(signs)
        parameter.grad.copy_(signs.sign())

    @contextmanager
    def no_sync(self, model: nn.Module) -> Iterator[None]:
        """Inside an accumulation window gradients are added up; the vote is on their sum."""
        before, self.voting = self.voting, False
        try:
            yield
        finally:
            self.voting = before

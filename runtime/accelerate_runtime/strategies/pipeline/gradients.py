"""Gradients that several processes must have in common: of tied parameters, and of the copies of a stage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .shares import Share


class Gradients:
    """Exchanges what a backward of this process's stages has found.

    Args:
        share: what this process has of the model.
        spread_overflow: fp16's loss is scaled: where one stage's gradients overflow, have all skip the step.
    """

    def __init__(self, share: Share, spread_overflow: bool) -> None:
        self._share, self._spread_overflow = share, spread_overflow
        self.exchanging = True

    @contextmanager
    def collected(self) -> Iterator[list[tuple[nn.Parameter, torch.Tensor]]]:
        """A context in which backwards' gradients are not added to those that parameters have; where it ends, the list
        that it gives has them, those of tied parameters summed over the stages."""
        parameters = [parameter for parameter in self._share.parameters if parameter.requires_grad]
        before = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        found: list[tuple[nn.Parameter, torch.Tensor]] = []
        try:
            yield found
            self._sum_tied()
            found += [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
        finally:
            for parameter, gradient in zip(parameters, before, strict=True):
                parameter.grad = gradient

    @contextmanager
    def added(self) -> Iterator[None]:
        """A context in which backwards' gradients are added to those that parameters have; see `add`."""
        if not self._share.tied:
            yield
            self.add([])
            return
        with self.collected() as found:
            yield
        self.add(found)

    def add(self, found: list[tuple[nn.Parameter, torch.Tensor]], factor: torch.Tensor | None = None) -> None:
        """Add collected gradients, times `factor`, to those that parameters have; average them where a window ends."""
        for parameter, gradient in found:
            if factor is not None:
                gradient.mul_(factor.to(gradient.device))
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad = (
                    parameter.grad + gradient if parameter.grad.is_sparse else parameter.grad.add_(gradient)
                )
        if self.exchanging:
            self._average()
            if self._spread_overflow:
                self._overflow_together()

    def _sum_tied(self) -> None:
        for parameter, group in self._share.tied:
            if parameter.requires_grad and self._anywhere([parameter], group)[0]:
                gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                gradient = gradient.contiguous()
                dist.all_reduce(gradient, group=group)
                parameter.grad = gradient

    def _average(self) -> None:
        """Over the copies of the stages, as DistributedDataParallel does."""
        group = self._share.copies
        if group is None:
            return
        parameters = [parameter for parameter in self._share.parameters if parameter.requires_grad]
        for parameter, has in zip(parameters, self._anywhere(parameters, group), strict=True):
            if has:
                gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
                gradient = gradient.contiguous()
                dist.all_reduce(gradient, group=group)
                parameter.grad = gradient.div_(dist.get_world_size(group))

    def _anywhere(self, parameters: list[nn.Parameter], group: Any) -> list[bool]:
        """Which of the parameters have a gradient on any process."""
        if not parameters:
            return []
        has = torch.tensor([float(p.grad is not None) for p in parameters], device=parameters[0].device)
        dist.all_reduce(has, op=dist.ReduceOp.MAX, group=group)
        flags: list[bool] = has.bool().tolist()
        return flags

    def _overflow_together(self) -> None:
        gradients = [parameter.grad for parameter in self._share.parameters if parameter.grad is not None]
        bad = torch.zeros((), device=self._share.device)
        for gradient in gradients:
            bad += (~gradient.isfinite()).any()
        dist.all_reduce(bad, group=self._share.pipeline)
        if bad > 0 and gradients:
            gradients[0].fill_(math.inf)


def total_norm(shares: list[Share], parameters: Iterable[nn.Parameter], norm_type: float) -> torch.Tensor:
    """The norm of the gradients over all stages, each parameter counted once. All processes must call it.

    Args:
        shares: what this process has of each model. Parameters of no such model are the same on all processes.
    """
    listed = [parameter for parameter in parameters if parameter.grad is not None]
    mine = {id(parameter) for share in shares for parameter in share.parameters}
    counted_elsewhere = {id(parameter) for share in shares for parameter in share.counted_elsewhere}
    others = [p.grad for p in listed if id(p) not in mine and p.grad is not None]
    if not shares:
        return nn.utils.get_total_norm(others, norm_type)
    own = [p.grad for p in listed if id(p) in mine and id(p) not in counted_elsewhere and p.grad is not None]
    device, group = shares[0].device, shares[0].pipeline
    norms = [torch.zeros((), device=device) for _ in range(dist.get_world_size(group))]
    dist.all_gather(norms, nn.utils.get_total_norm(own, norm_type).to(device) if own else norms[0].clone(), group)
    if others:
        norms.append(nn.utils.get_total_norm(others, norm_type).to(device))
    stacked = torch.stack(norms)
    return stacked.max() if math.isinf(norm_type) else torch.linalg.vector_norm(stacked, norm_type)

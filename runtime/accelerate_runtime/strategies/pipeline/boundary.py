"""Where the script's own graph meets the stages'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_ONCE = (
    "pipeline: backward was run a second time through one forward (retain_graph=True), whose stages are freed by the "
    "first: add the losses up, and call backward once."
)


class Boundary(torch.autograd.Function):
    """From the last stage's output to what the script computes with it; its backward runs the stages' backwards."""

    @staticmethod
    def forward(ctx: Any, _: torch.Tensor, backward: Callable[[list[Any]], None], *leaves: torch.Tensor) -> Any:
        ctx.run_backward, ctx.number = backward, len(leaves)
        ctx.set_materialize_grads(False)
        ctx.mark_dirty(*leaves)  # what comes out are they, not views, which a script could not change in place
        return leaves

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if ctx.run_backward is None:
            raise RuntimeError(_ONCE)
        run, ctx.run_backward = ctx.run_backward, None
        run(list(gradients))
        return (None, None, *[None] * ctx.number)


class Applied(torch.autograd.Function):
    """From the loss of a run that has done its backwards to what the script makes of it; its backward adds the
    gradients, times the loss's own."""

    @staticmethod
    def forward(ctx: Any, _: torch.Tensor, add: Callable[[torch.Tensor], None], loss: torch.Tensor) -> torch.Tensor:
        ctx.add = add
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if ctx.add is None:
            raise RuntimeError(_ONCE)
        add, ctx.add = ctx.add, None
        add(gradients[0])
        return None, None, None


def anchor() -> torch.Tensor:
    """Something that needs gradients, so that what comes out of a Function does."""
    return torch.zeros((), requires_grad=True)

"""Activation checkpointing: activations are computed again in backward instead of being kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint


def recompute(parts: Iterable[nn.Module], offload: bool) -> None:
    """Have each of `parts` keep its inputs only, in place (names and classes stay).

    Args:
        offload: keep these in the main memory.
    """
    for part in parts:
        part.forward = functools.partial(_forward, part.forward, offload)


def _forward(forward: Callable[..., Any], offload: bool, *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    with save_on_cpu() if offload else nullcontext():
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

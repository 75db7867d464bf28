"""A copy of a state in the main memory, to be written while training goes on."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ..structures import map_leaves
from .tensors import Identity, identity


def snapshot(value: Any) -> Any:
    """`value` (dicts, lists, tuples, tensors, …) with its tensors copied to the CPU; tied ones stay tied."""
    copies: dict[Identity, torch.Tensor] = {}

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return copy.deepcopy(leaf)
        known = identity(leaf)
        if known is None:
            return leaf.detach().to("cpu", copy=True)
        if known not in copies:
            copies[known] = leaf.detach().to("cpu", copy=True)
        return copies[known]

    return map_leaves(copied, value)

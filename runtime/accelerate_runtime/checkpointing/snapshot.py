"""A copy of a state in the main memory, to be written while training goes on."""

from __future__ import annotations

import copy
from typing import Any

import torch

from .tensors import Identity, identity


def snapshot(value: Any) -> Any:
    """`value` (dicts, lists, tuples, tensors, …) with its tensors copied to the CPU; tied ones stay tied."""
    return _copy(value, {})


def _copy(value: Any, copies: dict[Identity, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        known = identity(value)
        if known is None:
            return value.detach().to("cpu", copy=True)
        if known not in copies:
            copies[known] = value.detach().to("cpu", copy=True)
        return copies[known]
    if isinstance(value, dict):
        new = {} if type(value) is dict else copy.copy(value)  # a Counter, a defaultdict: with what else they know
        for key, item in value.items():
            new[key] = _copy(item, copies)
        return new
    if type(value) in (list, tuple):
        return type(value)(_copy(item, copies) for item in value)
    return copy.deepcopy(value)

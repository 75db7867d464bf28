"""What is logged, in the forms that clients take: plain numbers, lists of images, tables."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any

import torch


def plain(value: Any) -> Any:
    """The value with each tensor and array of one number as a Python number, inside dicts, lists and tuples too.

    Larger tensors are detached and brought to the CPU; other things are left as they are.
    """
    if type(value) in (int, float, str, bool):
        return value
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else value.detach().cpu()
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)):
        return value.item() if value.size == 1 else value
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    return value


def simple(values: Mapping[str, Any]) -> dict[str, Any]:
    """Hyper-parameters for a client that takes only numbers, texts, booleans and None: other things as text."""
    kept = (bool, int, float, str, type(None))
    return {str(key): value if isinstance(value, kept) else str(value) for key, value in plain(values).items()}


def left_out(tracker: str, key: str, value: Any, allowed: str) -> None:
    """Warn that a client cannot take this value."""
    kind = type(value).__name__
    warnings.warn(f"{tracker} logs {allowed}; {key!r}, of type {kind}, was left out", stacklevel=4)


def images(value: Any) -> list[Any]:
    """One image, a list of images or an array of four dimensions, as a list of images; tensors become arrays."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if getattr(value, "ndim", 0) == 4:
        return list(value)
    if isinstance(value, list):
        return [image.detach().cpu().numpy() if isinstance(image, torch.Tensor) else image for image in value]
    return [value]


def table(
    columns: list[str] | None, data: list[list[Any]] | None, dataframe: Any
) -> tuple[list[str] | None, list[list[Any]]]:
    """A table's columns and rows.

    Raises:
        ValueError: there is neither `data` nor `dataframe`.
    """
    if dataframe is not None:
        return [str(column) for column in dataframe.columns], plain(dataframe.to_numpy().tolist())
    if data is None:
        raise ValueError("log_table() was given neither data nor dataframe; pass one of them")
    return columns, [list(plain(row)) for row in data]

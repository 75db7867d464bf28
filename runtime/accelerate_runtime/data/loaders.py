"""What a DataLoader takes its batches from, and loaders that are another one but for some attributes."""

from __future__ import annotations

import copy
from typing import Any

from torch.utils.data import DataLoader, IterableDataset


def index_attribute(loader: DataLoader[Any]) -> str:
    """The attribute of `loader` that its batches' indices come from."""
    return "sampler" if loader.batch_sampler is None else "batch_sampler"


def index_sampler(loader: DataLoader[Any]) -> Any:
    """What `loader` takes its batches' indices from."""
    return getattr(loader, index_attribute(loader))


def is_stream(loader: DataLoader[Any]) -> bool:
    """Whether `loader` reads an iterable dataset."""
    return isinstance(loader.dataset, IterableDataset)


def copy_with(loader: DataLoader[Any], **replaced: Any) -> DataLoader[Any]:
    """A loader of the same class and settings, with some attributes replaced (which DataLoader itself forbids)."""
    new = copy.copy(loader)
    new.__dict__.update(replaced, _iterator=None)
    return new

"""Which objects can be prepared, which were, and what to say of the others."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset

from .optimizer import AcceleratedOptimizer
from .scheduler import AcceleratedScheduler

if TYPE_CHECKING:
    from .data import DataLoaderShard

MODEL, OPTIMIZER, LOADER, SCHEDULER = "model", "optimizer", "loader", "scheduler"
ORDER = (MODEL, OPTIMIZER, LOADER, SCHEDULER)


def kind_of(thing: Any, place: str) -> str:
    """What `thing` is prepared as.

    Args:
        place: how the message names it ("argument 2 of prepare()").

    Raises:
        TypeError: it cannot be prepared.
    """
    if isinstance(thing, nn.Module):
        return MODEL
    if isinstance(thing, torch.optim.Optimizer):
        return OPTIMIZER
    if isinstance(thing, DataLoader):
        return LOADER
    if isinstance(thing, (LRScheduler, AcceleratedScheduler)) or _looks_like_scheduler(thing):
        return SCHEDULER
    raise TypeError(f"{place} cannot be prepared: {_what_it_is(thing)}")


def _looks_like_scheduler(thing: Any) -> bool:
    if inspect.isclass(thing) or hasattr(thing, "zero_grad"):
        return False
    return all(callable(getattr(thing, name, None)) for name in ("step", "state_dict", "load_state_dict"))


def _what_it_is(thing: Any) -> str:
    name = type(thing).__name__
    allowed = "models, optimizers, data loaders (torch.utils.data.DataLoader) and schedulers"
    if thing is None:
        return f"it is None. Leave it out; prepare() takes {allowed}."
    if isinstance(thing, (list, tuple, set)):
        return f"it is a {name}. Pass its items one by one: prepare(*objects)."
    if isinstance(thing, Mapping):
        return f"it is a {name}. Pass its values one by one and put back what prepare() returns."
    if inspect.isclass(thing):
        return f"it is the class {thing.__name__} itself. Pass an instance."
    if hasattr(thing, "zero_grad") and hasattr(thing, "step"):
        return f"it is a {name}, which holds an optimizer but is none of torch. Prepare the one inside it."
    if isinstance(thing, Iterator):
        return f"it is an iterator ({name}), which cannot be divided among processes. Prepare the loader behind it."
    if isinstance(thing, Dataset):
        return f"it is a dataset ({name}). Prepare a DataLoader over it."
    if isinstance(thing, torch.Tensor):
        return "it is a tensor. Move it with .to(accelerator.device)."
    if hasattr(thing, "__iter__"):
        return f"it is a {name}, which is no torch.utils.data.DataLoader. Build a DataLoader instead."
    return f"it is a {name}; prepare() takes {allowed}."


class Prepared:
    """What one Accelerator prepared. Preparing a thing again gives the same prepared object."""

    def __init__(self) -> None:
        self.models: list[nn.Module] = []
        self.optimizers: list[AcceleratedOptimizer] = []
        self.loaders: list[DataLoaderShard] = []
        self.schedulers: list[AcceleratedScheduler] = []
        self._by_original: dict[int, tuple[Any, Any]] = {}

    def find(self, thing: Any) -> Any | None:
        """The prepared object of `thing`, which may be that object itself."""
        entry = self._by_original.get(id(thing))
        return entry[1] if entry is not None else None

    def remember(self, original: Any, prepared: Any, shelf: list[Any]) -> None:
        """Keep the pair (alive, so that identities stay unique)."""
        self._by_original[id(original)] = (original, prepared)
        self._by_original[id(prepared)] = (prepared, prepared)
        shelf.append(prepared)

    def clear(self) -> None:
        """Forget everything."""
        for shelf in (self.models, self.optimizers, self.loaders, self.schedulers):
            shelf.clear()
        self._by_original.clear()

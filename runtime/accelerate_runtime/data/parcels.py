"""Batches with a note, on their way from where they are made to where they are given to the script."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from .samplers import Share

P = TypeVar("P", bound="Parcel")


class Parcel:
    """A batch, or a sample of one; derived classes add the note."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def pin_memory(self: P, device: str | None = None) -> P:
        """Called by a DataLoader with pin_memory=True."""
        from torch.utils.data._utils.pin_memory import pin_memory

        pinned = copy.copy(self)
        pinned.value = pin_memory(self.value, device)  # type: ignore[no-untyped-call]
        return pinned


class Tagged(Parcel):
    """One of a round that is not full; its note is how the round was dealt."""

    __slots__ = ("share",)

    def __init__(self, value: Any, share: Share) -> None:
        super().__init__(value)
        self.share = share


class TaggedCollate:
    """A loader's `collate_fn` that lets tags through."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: Any) -> Any:
        if isinstance(samples, Tagged):
            return Tagged(self.collate(samples.value), samples.share)
        if isinstance(samples, list) and samples and isinstance(samples[0], Tagged):
            return Tagged(self.collate([sample.value for sample in samples]), samples[0].share)
        return self.collate(samples)

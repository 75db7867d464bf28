"""Collated batches as lists of samples: what in them has one row a sample, taking rows out, putting rows together.

A tensor has a row per sample along its first dimension. A list or tuple of as many items as there are samples (names,
images of different sizes) has one as well. Tensors without dimensions, numbers, texts and other objects belong to the
batch as a whole: each part of it gets them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..structures import items_of, rebuild, rebuild_items

ROWS, WHOLE = "rows", "whole"
Layout = Any
"""ROWS, WHOLE, or for a container: its children's layouts, by key, by field, or in order."""


def layout_of(batch: Any, size: int | None, default_collate: bool) -> Layout | None:
    """Where the samples of `batch` are; None where that cannot be told.

    Args:
        size: how many samples a full batch has, if that is known. This batch may have fewer.
        default_collate: torch's own collation made the batch, which makes no lists of tensors of one sample each.
    """
    if isinstance(batch, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in batch):
        default_collate = True  # x, y, … rather than samples
    if size is not None and (layout := _layout(batch, size, not default_collate)) is not None and _has_rows(layout):
        return layout
    lengths = {length for length in _lengths(batch) if length and (size is None or length < size)}
    found = [layout for length in lengths if (layout := _layout(batch, length, False)) is not None]
    found = [layout for layout in found if _has_rows(layout)]
    return found[0] if len(found) == 1 else None


def _layout(node: Any, size: int, lists_of_tensors: bool) -> Layout | None:
    if isinstance(node, torch.Tensor):
        if node.ndim == 0:
            return WHOLE
        return ROWS if node.shape[0] == size else None
    if isinstance(node, (list, tuple)):
        children = [_layout(child, size, lists_of_tensors) for child in node]
        structure = None not in children and any(map(_has_rows, children))
        samples = len(node) == size > 0 and not hasattr(node, "_fields")
        samples = samples and (lists_of_tensors or not any(isinstance(child, torch.Tensor) for child in node))
        if structure and samples and lists_of_tensors:
            return None  # two ways to see it
        if structure:
            return children
        if samples:
            return ROWS
        return WHOLE if None not in children else None
    if (items := items_of(node)) is not None:
        named = {name: _layout(child, size, lists_of_tensors) for name, child in items.items()}
        return None if None in named.values() else named
    return WHOLE


def _has_rows(layout: Layout) -> bool:
    if isinstance(layout, (list, dict)):
        return any(map(_has_rows, layout.values() if isinstance(layout, dict) else layout))
    return bool(layout == ROWS)


def _lengths(node: Any) -> Iterator[int]:
    if isinstance(node, torch.Tensor):
        if node.ndim:
            yield node.shape[0]
    elif isinstance(node, (list, tuple)):
        yield len(node)
        for child in node:
            yield from _lengths(child)
    elif (items := items_of(node)) is not None:
        for child in items.values():
            yield from _lengths(child)


def count_rows(batch: Any, layout: Layout) -> int:
    """How many samples `batch` has.

    Raises:
        ValueError: its tensors and lists disagree, or it is made otherwise than `layout` says.
    """
    counts = set(_row_counts(batch, layout))
    if len(counts) != 1:
        raise ValueError(f"parts of a batch have different numbers of samples: {sorted(counts)}")
    return counts.pop()


def _row_counts(node: Any, layout: Layout) -> Iterator[int]:
    if layout == ROWS:
        yield len(node)
    elif isinstance(layout, list):
        if not isinstance(node, (list, tuple)) or len(node) != len(layout):
            raise ValueError("a batch is made otherwise than the first one")
        for child, inner in zip(node, layout, strict=True):
            yield from _row_counts(child, inner)
    elif isinstance(layout, dict):
        items = items_of(node)
        if items is None or items.keys() != layout.keys():
            raise ValueError("a batch is made otherwise than the first one")
        for name, inner in layout.items():
            yield from _row_counts(items[name], inner)


def take_rows(batch: Any, layout: Layout, start: int, stop: int) -> Any:
    """The samples `start` to `stop` of `batch`."""
    if layout == ROWS:
        return batch[start:stop]
    if isinstance(layout, list):
        return rebuild(
            batch, [take_rows(child, inner, start, stop) for child, inner in zip(batch, layout, strict=True)]
        )
    if isinstance(layout, dict):
        items = items_of(batch) or {}
        return rebuild_items(
            batch, {name: take_rows(items[name], inner, start, stop) for name, inner in layout.items()}
        )
    return batch


def join_rows(batches: Sequence[Any], layout: Layout) -> Any:
    """One batch with the samples of all `batches`; what belongs to a batch as a whole is the first one's.

    Raises:
        RuntimeError: tensors differ in the other dimensions.
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    if layout == ROWS:
        if isinstance(first, torch.Tensor):
            return torch.cat(list(batches))
        return type(first)(item for batch in batches for item in batch)
    if isinstance(layout, list):
        return rebuild(first, [join_rows([b[i] for b in batches], inner) for i, inner in enumerate(layout)])
    if isinstance(layout, dict):
        items = [items_of(batch) or {} for batch in batches]
        return rebuild_items(
            first, {name: join_rows([i[name] for i in items], inner) for name, inner in layout.items()}
        )
    return first


class RowRange(Sequence[Any]):
    """Some consecutive samples of a collated batch, without taking them out.

    Args:
        total: how many samples the batch has.
    """

    __slots__ = ("batch", "layout", "start", "stop", "total")

    def __init__(self, batch: Any, layout: Layout, total: int, start: int, stop: int) -> None:
        self.batch, self.layout, self.total, self.start, self.stop = batch, layout, total, start, stop

    @classmethod
    def whole(cls, batch: Any, layout: Layout) -> RowRange:
        """All samples of `batch`; raises what `count_rows` raises."""
        total = count_rows(batch, layout)
        return cls(batch, layout, total, 0, total)

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, index: Any) -> Any:
        start, stop, _ = (index if isinstance(index, slice) else slice(index, index + 1)).indices(len(self))
        if start >= len(self) and not isinstance(index, slice):
            raise IndexError(index)
        return self._part(self.start + start, self.start + max(start, stop))

    def _part(self, start: int, stop: int) -> RowRange:
        return RowRange(self.batch, self.layout, self.total, start, stop)

    def __add__(self, more: list[Any]) -> list[Any]:
        return [*self, *more]

    def followed_by(self, other: RowRange) -> RowRange | None:
        """Both as one range, where `other` goes on where this one ends."""
        if other.batch is self.batch and other.start == self.stop:
            return self._part(self.start, other.stop)
        return None

    def taken_out(self) -> Any:
        """A batch of these samples alone."""
        if len(self) == self.total:
            return self.batch
        return take_rows(self.batch, self.layout, self.start, self.stop)


def take_out(part: RowRange | list[RowRange]) -> Any:
    """A batch of the samples of one range, or of several."""
    if isinstance(part, RowRange):
        return part.taken_out()
    ranges: list[RowRange] = []
    for piece in part:
        joined = ranges[-1].followed_by(piece) if ranges else None
        if joined is not None:
            ranges[-1] = joined
        else:
            ranges.append(piece)
    return join_rows([piece.taken_out() for piece in ranges], ranges[0].layout)

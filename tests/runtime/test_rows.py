"""Collated batches seen as lists of samples."""

from __future__ import annotations

from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from accelerate_runtime.data.rows import ROWS, WHOLE, RowRange, layout_of, take_out

Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Example:
    x: torch.Tensor
    names: list[str]
    task: str


X, Y = torch.arange(8.0).reshape(4, 2), torch.arange(4)
IMAGES = tuple(torch.ones(3, size, 5) for size in (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("batch", "layout"),
    [
        (X, ROWS),
        ([X, Y], [ROWS, ROWS]),
        (Pair(X, {"y": Y, "lr": torch.tensor(0.1), "name": "train"}), [ROWS, {"y": ROWS, "lr": WHOLE, "name": WHOLE}]),
        (UserDict(x=X, none=None), {"x": ROWS, "none": WHOLE}),
        (Example(X, list("abcd"), "qa"), {"x": ROWS, "names": ROWS, "task": WHOLE}),
        ((IMAGES, tuple({"box": torch.ones(2, 4)} for _ in range(4))), [ROWS, ROWS]),
        ([("a", 1), ("b", 2), ("c", 3), ("d", 4)], ROWS),
        ([X, torch.ones(3)], None),  # class weights, say: no row a sample
        ("text", None),
    ],
)
def test_what_has_a_row_a_sample(batch: Any, layout: Any) -> None:
    assert layout_of(batch, 4, default_collate=False) == layout


def test_a_batch_that_is_not_full() -> None:
    assert layout_of([X, Y], 8, default_collate=True) == [ROWS, ROWS]
    assert layout_of([X, Y], None, default_collate=True) == [ROWS, ROWS]
    assert layout_of([X, torch.ones(3)], 8, default_collate=True) is None


def test_two_ways_to_see_it_are_none() -> None:
    two = [torch.ones(2, 3), torch.ones(2, 3)]
    assert layout_of(two, 2, default_collate=False) == [ROWS, ROWS]  # x and y of two samples
    assert layout_of({"images": two}, 2, default_collate=True) == {"images": [ROWS, ROWS]}
    assert layout_of({"images": two}, 2, default_collate=False) is None  # or two images of two rows each


def test_rows_are_taken_out_and_joined() -> None:
    batch = Example(X, list("abcd"), "qa")
    layout = layout_of(batch, 4, default_collate=False)
    rows = RowRange.whole(batch, layout)
    assert take_out(rows) is batch
    other = RowRange.whole(Example(-X, list("efgh"), "other"), layout)
    part = take_out([*rows[1:3], other[0], other[1]])
    assert torch.equal(part.x, torch.cat([X[1:3], -X[:2]]))
    assert (part.names, part.task) == (list("bcef"), "qa")
    assert batch.names == list("abcd")
    assert take_out(list(rows)) is batch
    assert len(take_out(rows[1:3] + list(other)).names) == 6
    assert len(rows[4:]) == 0


def test_parts_must_agree() -> None:
    layout = layout_of([X, Y], 4, default_collate=True)
    with pytest.raises(ValueError, match=r"different numbers of samples: \[3, 4\]"):
        RowRange.whole([X, Y[:3]], layout)
    with pytest.raises(ValueError, match="otherwise than the first"):
        RowRange.whole([X, Y, Y], layout)
    with pytest.raises(ValueError, match="otherwise than the first"):
        RowRange.whole({"y": Y}, {"x": ROWS})

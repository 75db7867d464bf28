"""Nested structures of tensors, on their way to a device and back."""

from __future__ import annotations

import warnings
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from accelerate_runtime.utils import (
    CannotPadNestedTensorWarning,
    broadcast_object_list,
    concatenate,
    find_batch_size,
    gather_object,
    honor_type,
    listify,
    pad_across_processes,
    recursively_apply,
    send_to_device,
)

Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Predictions:
    logits: torch.Tensor


@dataclass(frozen=True)
class Example:
    x: torch.Tensor
    name: str


class Batch:
    """Moves itself, and knows no `non_blocking`."""

    device = "cpu"

    def to(self, device: Any) -> Batch:
        self.device = str(device)
        return self


def test_everything_that_can_move_moves_and_keeps_its_type() -> None:
    t = torch.ones(2)
    data: Any = {
        "list": [t, "text", None],
        "pair": Pair(t, (t, 3)),
        "ordered": OrderedDict(a=t),
        "default": defaultdict(list, a=t),
        "example": Example(t, "n"),
        "own": Batch(),
    }
    moved = send_to_device(data, "meta", non_blocking=True)
    assert moved["list"][0].device.type == "meta"
    assert moved["list"][1:] == ["text", None]
    assert type(moved["pair"]) is Pair
    assert moved["pair"].right[0].device.type == "meta"
    assert type(moved["ordered"]) is OrderedDict
    assert moved["ordered"]["a"].device.type == "meta"
    assert moved["default"]["missing"] == []
    assert moved["example"].x.device.type == "meta"
    assert moved["example"].name == "n"
    assert moved["own"].device == "meta"
    assert data["list"][0].device.type == data["example"].x.device.type == "cpu"


def test_keys_may_be_skipped() -> None:
    moved = send_to_device({"a": torch.ones(1), "b": torch.ones(1)}, "meta", skip_keys="b")
    assert (moved["a"].device.type, moved["b"].device.type) == ("meta", "cpu")


def test_a_function_is_applied_to_chosen_items() -> None:
    data = {"a": [torch.ones(2), 3], "pair": Pair(torch.zeros(1), "text")}
    doubled = recursively_apply(lambda t, by: t * by, data, 2)
    assert doubled["a"][0].tolist() == [2, 2]
    assert doubled["a"][1] == 3
    assert type(doubled["pair"]) is Pair
    assert recursively_apply(lambda n: n + 1, data, test_type=lambda item: isinstance(item, int))["a"][1] == 4
    with pytest.raises(TypeError, match=r"<class 'int'>.*`tolist`.*`is_torch_tensor`"):
        recursively_apply(torch.Tensor.tolist, data, error_on_other_type=True)
    assert honor_type(Pair(1, 2), (n + 1 for n in (1, 2))) == Pair(2, 3)
    assert honor_type([1], iter("ab")) == ["a", "b"]
    assert listify({"a": torch.tensor([[1, 2]]), "b": "text"}) == {"a": [[1, 2]], "b": "text"}


def test_user_dicts_and_compiled_moves() -> None:
    moved = send_to_device(UserDict(a=torch.ones(1), b=["text"]), "meta")
    assert type(moved) is UserDict
    assert (moved["a"].device.type, moved["b"]) == ("meta", ["text"])
    compiled = torch.compile(send_to_device, fullgraph=True, backend="eager")
    assert compiled({"a": torch.ones(1)}, "cpu")["a"].tolist() == [1]


def test_nested_tensors_are_not_padded() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([[1, 2], [1]])  # torch says that it is a prototype
    with pytest.warns(CannotPadNestedTensorWarning):
        assert pad_across_processes(nested) is nested


def test_small_helpers() -> None:
    assert find_batch_size({"a": 1, "b": [torch.tensor(1), torch.ones(3, 2)]}) == 3
    assert find_batch_size([torch.tensor(1)]) is None
    predictions = concatenate([Predictions(torch.ones(1)), Predictions(torch.zeros(2))])
    assert predictions.logits.tolist() == [1, 0, 0]
    joined = concatenate([{"a": (torch.ones(1),)}, {"a": (torch.zeros(2),)}])
    assert joined["a"][0].tolist() == [1, 0, 0]
    with pytest.raises(TypeError, match="not str"):
        concatenate(["a", "b"])
    assert gather_object(["x"]) == ["x"]
    assert broadcast_object_list([1]) == [1]

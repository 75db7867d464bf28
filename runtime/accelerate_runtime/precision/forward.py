"""A prepared model's forward: under autocast, with float32 outputs."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..structures import map_tensors

if TYPE_CHECKING:
    from .mode import Precision


class MixedForward:
    """Stands in for `model.forward`. Copied with its model; pickled as the plain method, so files do without us."""

    def __init__(self, model: nn.Module, precision: Precision) -> None:
        self.model, self.precision = model, precision
        self.own = model.__dict__.get("forward")
        self.__wrapped__ = model.forward  # what inspect.signature() shows

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.precision.around_forward(self.model.training):
            output = self.own(*args, **kwargs) if self.own else type(self.model).forward(self.model, *args, **kwargs)
        return output if self.precision.kwargs.keep_output_dtype else convert_to_fp32(output)

    def __deepcopy__(self, memo: dict[int, Any]) -> MixedForward:
        new = MixedForward.__new__(MixedForward)
        new.model, new.precision, new.own = memo.get(id(self.model), self.model), self.precision, self.own
        new.__wrapped__ = new.own or types.MethodType(type(new.model).forward, new.model)
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.model, "forward")  # of the class: the file is read into a model that has no other yet


def wrap_forward(model: nn.Module, precision: Precision) -> None:
    """Have `model.forward` run in mixed precision, in place; once."""
    if not isinstance(model.__dict__.get("forward"), MixedForward):
        model.forward = MixedForward(model, precision)


def unwrap_forward(model: nn.Module) -> None:
    """Undo `wrap_forward`, in place."""
    wrapped = model.__dict__.get("forward")
    if isinstance(wrapped, MixedForward):
        if wrapped.own is None:
            del model.__dict__["forward"]
        else:
            model.forward = wrapped.own


def convert_to_fp32(tensor: Any) -> Any:
    """A nested structure with its float16 and bfloat16 tensors in float32; everything else is kept."""
    return map_tensors(_to_fp32, tensor, strict=False)


def convert_outputs_to_fp32(model_forward: Callable[..., Any]) -> Callable[..., Any]:
    """`model_forward`, with its outputs passed through `convert_to_fp32`."""

    @functools.wraps(model_forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return convert_to_fp32(model_forward(*args, **kwargs))

    return forward


def _to_fp32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor

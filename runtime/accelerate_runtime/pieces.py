"""Parts of models that are spread over processes, which must not end in one process's file without a word."""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any, NoReturn, TypeVar

import torch
from torch import nn

from .structures import map_leaves

P = TypeVar("P", nn.Module, torch.Tensor)

_MARK = "__reduce_ex__"  # what pickle, and so torch.save, asks an object for, before its class
_SENDERS = ("torch", "multiprocessing", "copy")
"""Modules that pickle to send or to copy, not to write a file."""


def keep_out_of_files(piece: P) -> P:
    """Have `torch.save` and pickle refuse `piece`, a module or a parameter of which this process has a part only."""
    piece.__dict__[_MARK] = functools.partial(_reduce, weakref.ref(piece))
    return piece


def keep_spread_tensors_out_of_files() -> None:
    """The same for all tensors that are spread over a device mesh (DTensor), copies and momenta too."""
    from torch.distributed.tensor import DTensor

    if _MARK not in vars(DTensor):
        DTensor.__reduce_ex__ = _reduce_spread  # type: ignore[method-assign]


def check(data: Any, call: str) -> None:
    """Refuse pieces in what one process is to write for all.

    Args:
        call: what was given them.

    Raises:
        ValueError: there are some; on every process, where all look.
    """
    map_leaves(lambda leaf: _refuse(call) if _is_piece(leaf) else leaf, data)


def wanted_in_shards() -> bool:
    """Whether it is torch.distributed.checkpoint that asks for a state dict: it writes each process's part."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == "torch.distributed.checkpoint.state_dict":
            return True
    return False


def _is_piece(leaf: Any) -> bool:
    if isinstance(leaf, nn.Module):  # a wrapper holds the piece
        return any(_MARK in part.__dict__ for part in leaf.modules())
    return isinstance(leaf, torch.Tensor) and (hasattr(leaf, "to_local") or _MARK in leaf.__dict__)


def _reduce(reference: weakref.ref[Any], protocol: Any) -> Any:
    _refuse_files(sys._getframe(1).f_globals)
    piece = reference()
    if isinstance(piece, torch.Tensor):
        plain: Any = nn.Parameter(piece.detach(), piece.requires_grad)
    else:
        plain = object.__new__(type(piece))
        plain.__dict__.update({name: value for name, value in vars(piece).items() if name != _MARK})
    return plain.__reduce_ex__(protocol)


def _reduce_spread(tensor: torch.Tensor, protocol: Any) -> Any:
    _refuse_files(sys._getframe(1).f_globals)
    return torch.Tensor.__reduce_ex__(tensor, protocol)  # type: ignore[no-untyped-call]


def _refuse_files(caller: dict[str, Any]) -> None:
    name = str(caller.get("__name__"))
    if name == "torch.serialization":
        _refuse("torch.save()")
    if name.partition(".")[0] not in _SENDERS:
        _refuse("pickle")


def _refuse(call: str) -> NoReturn:
    raise ValueError(
        f"{call} was given a prepared model, or tensors of it or its optimizer, of which each process has a part "
        "(shards, or stages of a pipeline): the file would hold the part of one process. Call "
        "accelerator.get_state_dict(model) instead of model.state_dict(), and optimizer.state_dict(), on every "
        "process, and save what the main process gets; or accelerator.save_state(), which writes everything. To write "
        "parts all the same, take them: tensor.to_local() of shards, parameter.detach() of stages."
    )

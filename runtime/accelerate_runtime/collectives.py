"""gather, reduce, broadcast and pad over nested structures of tensors, on all processes.

Where several processes work on one model together, and so on the same batch, they count as one for gather, reduce and
pad_across_processes: each sample comes once.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist

from . import division, topology
from .structures import map_tensors
from .waiting import together


class DistributedOperationException(RuntimeError):
    """In debug mode: the processes call different operations, or with different shapes."""


class CannotPadNestedTensorWarning(UserWarning):
    """A nested tensor was passed to pad_across_processes, which leaves it as it is."""


def _check(name: str, data: Any, free: int | None = None) -> None:
    """In debug mode, compare what the processes are about to call with.

    Args:
        free: a dimension in which the tensors may differ.
    """
    if not topology.debugging() or not _spread():
        return

    def describe(tensor: torch.Tensor) -> str:
        sizes: list[Any] = list(tensor.shape)
        if free is not None and -tensor.ndim <= free < tensor.ndim:
            sizes[free] = "any"
        return f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(map(str, sizes))}]"

    everyone = all_gather_object((name, repr(map_tensors(describe, data)).replace("'", "")))
    if len(set(everyone)) > 1:
        lines = "".join(f"\n  process {rank}: {theirs} of {shapes}" for rank, (theirs, shapes) in enumerate(everyone))
        raise DistributedOperationException(
            "the processes must call the same operation with tensors of the same types and shapes. They call:" + lines
        )


def gather(tensor: Any) -> Any:
    """Each process's tensors, joined along the first dimension in the order of the processes, on every process.

    Shapes must agree between processes, `(n, ...)` becoming `(num_processes * n, ...)`; a tensor without dimensions
    becomes one of shape `(num_processes,)`. On one process `tensor` is returned as it is. Processes that work on one
    model together count as one.

    Raises:
        TypeError: something in it is not a tensor.
    """
    _check("gather", tensor)
    return map_tensors(_gather_one, tensor)


def _gather_one(tensor: torch.Tensor) -> torch.Tensor:
    dealt = division.current()
    count, group = (dealt.place.num_processes, dealt.group) if tensor.ndim else dealt.numbers
    if count == 1:
        return tensor
    wire = _on_wire(tensor.reshape(1) if tensor.ndim == 0 else tensor)
    parts = [torch.empty_like(wire) for _ in range(count)]
    together("gather", dist.all_gather, parts, wire, group)
    return torch.cat(parts)


def gather_object(object: Any) -> Any:
    """The lists that the processes pass, joined in the order of the processes, on every process.

    On one process `object` is returned as it is.
    """
    if _parts() == 1:
        return object
    return [item for part in of_all_parts(object) for item in part]


def of_all_parts(value: Any) -> list[Any]:
    """The (picklable) `value` of one process of each part of the data, on every process."""
    if _parts() == 1:
        return [value]
    values: list[Any] = [None] * _parts()
    together("gather_object", dist.all_gather_object, values, value, division.current().group)
    return values


def all_gather_object(value: Any) -> list[Any]:
    """Each process's (picklable) `value`, in the order of the processes, on every process. All processes count."""
    if not _spread():
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    together("gather_object", dist.all_gather_object, values, value)
    return values


def broadcast(tensor: Any, from_process: int = 0) -> Any:
    """The tensors of process `from_process`, on every process; shapes must agree. They keep their device."""
    _check("broadcast", tensor)
    return map_tensors((lambda t: _broadcast_one(t, from_process)) if _spread() else _same, tensor)


def _broadcast_one(tensor: torch.Tensor, source: int) -> torch.Tensor:
    wire = _on_wire(tensor).clone(memory_format=torch.contiguous_format)
    together("broadcast", dist.broadcast, wire, source)
    return wire.to(tensor.device)


def broadcast_object_list(object_list: list[Any], from_process: int = 0) -> list[Any]:
    """Replace, in place, the (picklable) items of `object_list` by those of `from_process`; returns the list."""
    if _spread():
        together("broadcast_object_list", dist.broadcast_object_list, object_list, src=from_process)
    return object_list


def reduce(tensor: Any, reduction: str = "mean", scale: float = 1.0) -> Any:
    """The tensors' sum, mean or maximum over the processes, times `scale`, on all of them; the originals stay.

    Args:
        reduction: "sum", "mean", "max", or "none" (each process keeps its own).

    Raises:
        ValueError: another `reduction`.
    """
    if reduction not in ("sum", "mean", "max", "none"):
        raise ValueError(f"reduction={reduction!r}: allowed are 'sum', 'mean', 'max' and 'none'")
    if reduction == "none":
        return tensor
    _check("reduce", tensor)
    return map_tensors(lambda t: _reduce_one(t, reduction, scale), tensor)


def _reduce_one(tensor: torch.Tensor, reduction: str, scale: float) -> torch.Tensor:
    result = tensor
    count, group = division.current().numbers
    if count > 1:
        result = _on_wire(tensor).clone(memory_format=torch.contiguous_format)
        operation = dist.ReduceOp.MAX if reduction == "max" else dist.ReduceOp.SUM
        together("reduce", dist.all_reduce, result, operation, group)
        if reduction == "mean":
            result = result / count
        result = result.to(tensor.device)
    return result if scale == 1.0 else result * scale


def pad_across_processes(tensor: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Any:
    """The tensors, each padded along `dim` to the longest of any process.

    Args:
        pad_index: the value that fills.
        pad_first: fill at the front instead of the end.

    A tensor without that dimension, or alone, is returned as it is.
    """
    _check("pad_across_processes", tensor, free=dim)
    return map_tensors(lambda t: _pad_one(t, dim, pad_index, pad_first), tensor)


def _pad_one(tensor: torch.Tensor, dim: int, pad_index: float, pad_first: bool) -> torch.Tensor:
    if tensor.is_nested:
        told = "pad_across_processes leaves a nested tensor as it is; pass tensor.to_padded_tensor(...) instead."
        warnings.warn(told, CannotPadNestedTensorWarning, stacklevel=4)
        return tensor
    if _parts() == 1:
        return tensor
    if not -tensor.ndim <= dim < tensor.ndim:
        return tensor
    longest = int(_gather_one(torch.tensor(tensor.shape[dim], device=tensor.device)).max())
    missing = longest - tensor.shape[dim]
    if missing == 0:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = missing
    filler = tensor.new_full(shape, pad_index)
    return torch.cat([filler, tensor] if pad_first else [tensor, filler], dim=dim)


def wait_for_everyone() -> None:
    """Return once every process has called this."""
    if not _spread():
        return
    place = topology.current()
    if place.device.type == "cpu":
        together("wait_for_everyone", dist.barrier)
    else:
        together("wait_for_everyone", dist.barrier, device_ids=[place.device.index])


def any_process(flag: bool) -> bool:
    """Whether `flag` is up on any process, whatever it works on."""
    if not _spread():
        return flag
    raised = torch.tensor(float(flag), device=wire_device())
    together("check_trigger", dist.all_reduce, raised)
    return bool(raised > 0)


def _parts() -> int:
    """Into how many parts the data is divided."""
    return division.current().place.num_processes


def _spread() -> bool:
    return topology.current().num_processes > 1


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _on_wire(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous (gloo is silently wrong on strided slices), without history, on the device that the group serves."""
    tensor = tensor.detach()
    if hasattr(tensor, "full_tensor"):  # spread over processes: they all have the same whole
        tensor = tensor.full_tensor()
    return tensor.to(wire_device()).contiguous()


def wire_device() -> torch.device:
    """Where tensors must be for the process group to send them."""
    return topology.current().device

"""gather, reduce, broadcast, pad and send_to_device over nested structures of tensors."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from . import topology


def map_tensors(action: Callable[[torch.Tensor], Any], data: Any, *, strict: bool = True) -> Any:
    """`data` with `action` applied to each tensor in it: lists, tuples, namedtuples, mappings and dataclasses.

    Raises:
        TypeError: something in it is neither a tensor nor a container (only where `strict`; otherwise it is kept).
    """
    if isinstance(data, torch.Tensor):
        return action(data)
    if isinstance(data, (list, tuple)):
        return rebuild(data, [map_tensors(action, item, strict=strict) for item in data])
    if isinstance(data, Mapping):
        return rebuild_mapping(data, {key: map_tensors(action, value, strict=strict) for key, value in data.items()})
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return rebuild_dataclass(data, lambda value: map_tensors(action, value, strict=strict))
    if strict:
        raise TypeError(
            f"expected tensors, or lists, tuples and dicts of them, not {type(data).__name__}; for other objects use "
            "gather_object or gather_for_metrics(..., use_gather_object=True)."
        )
    return data


def rebuild(like: Any, items: list[Any]) -> Any:
    """A list, tuple or namedtuple of `like`'s type that holds `items`."""
    if hasattr(like, "_fields"):
        return type(like)(*items)
    return type(like)(items)


def rebuild_mapping(like: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """A mapping of `like`'s type that holds `items` (defaultdict and its kind keep what else they know)."""
    if type(like) is dict:
        return items
    new = copy.copy(like)
    for key, value in items.items():
        new[key] = value  # type: ignore[index]
    return new


def rebuild_dataclass(data: Any, action: Callable[[Any], Any]) -> Any:
    """A copy of the dataclass instance `data` with `action` applied to its fields."""
    new = copy.copy(data)
    for item in dataclasses.fields(data):
        object.__setattr__(new, item.name, action(getattr(data, item.name)))
    return new


def send_to_device(
    tensor: Any, device: torch.device | str | int, non_blocking: bool = False, skip_keys: str | list[str] | None = None
) -> Any:
    """A nested structure with everything that has a `.to` method moved to `device`; other objects are kept.

    Args:
        tensor: tensors and objects with `.to`, in lists, tuples, namedtuples, mappings and dataclasses.
        skip_keys: keys of mappings whose values stay where they are.
    """
    if isinstance(tensor, torch.Tensor):
        return tensor.to(device, non_blocking=non_blocking)
    if hasattr(tensor, "to") and not isinstance(tensor, type):
        try:
            return tensor.to(device, non_blocking=non_blocking)
        except TypeError:  # a .to of its own, without non_blocking
            return tensor.to(device)
    if isinstance(tensor, (list, tuple)):
        return rebuild(tensor, [send_to_device(item, device, non_blocking, skip_keys) for item in tensor])
    if isinstance(tensor, Mapping):
        skipped = [skip_keys] if isinstance(skip_keys, str) else skip_keys or []
        moved = {
            key: value if key in skipped else send_to_device(value, device, non_blocking, skip_keys)
            for key, value in tensor.items()
        }
        return rebuild_mapping(tensor, moved)
    if dataclasses.is_dataclass(tensor) and not isinstance(tensor, type):
        return rebuild_dataclass(tensor, lambda value: send_to_device(value, device, non_blocking, skip_keys))
    return tensor


def find_batch_size(data: Any) -> int | None:
    """The length of the first dimension of the first tensor in `data` that has one; None where there is none."""
    found: list[int] = []

    def look(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim:
            found.append(tensor.shape[0])
        return tensor

    map_tensors(look, data, strict=False)
    return found[0] if found else None


def gather(tensor: Any) -> Any:
    """Each process's tensors, joined along the first dimension in the order of the processes, on every process.

    Shapes must agree between processes, `(n, ...)` becoming `(num_processes * n, ...)`; a tensor without dimensions
    becomes one of shape `(num_processes,)`. On one process `tensor` is returned as it is.

    Raises:
        TypeError: something in it is not a tensor.
    """
    return map_tensors(_gather_one if _spread() else _same, tensor)


def _gather_one(tensor: torch.Tensor) -> torch.Tensor:
    wire = _on_wire(tensor.reshape(1) if tensor.ndim == 0 else tensor)
    parts = [torch.empty_like(wire) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, wire)
    return torch.cat(parts)


def gather_object(object: Any) -> Any:
    """The lists that the processes pass, joined in the order of the processes, on every process.

    On one process `object` is returned as it is.
    """
    if not _spread():
        return object
    return [item for part in all_gather_object(object) for item in part]


def all_gather_object(value: Any) -> list[Any]:
    """Each process's (picklable) `value`, in the order of the processes, on every process."""
    if not _spread():
        return [value]
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, value)
    return parts


def broadcast(tensor: Any, from_process: int = 0) -> Any:
    """The tensors of process `from_process`, on every process; shapes must agree. They keep their device."""
    return map_tensors((lambda t: _broadcast_one(t, from_process)) if _spread() else _same, tensor)


def _broadcast_one(tensor: torch.Tensor, source: int) -> torch.Tensor:
    wire = _on_wire(tensor).clone(memory_format=torch.contiguous_format)
    dist.broadcast(wire, source)
    return wire.to(tensor.device)


def broadcast_object_list(object_list: list[Any], from_process: int = 0) -> list[Any]:
    """Replace, in place, the (picklable) items of `object_list` by those of `from_process`; returns the list."""
    if _spread():
        dist.broadcast_object_list(object_list, src=from_process)
    return object_list


def reduce(tensor: Any, reduction: str = "mean", scale: float = 1.0) -> Any:
    """The tensors' sum or mean over the processes, times `scale`, on every process; the originals are not changed.

    Args:
        reduction: "sum", "mean", or "none" (each process keeps its own).

    Raises:
        ValueError: another `reduction`.
    """
    if reduction not in ("sum", "mean", "none"):
        raise ValueError(f"reduction={reduction!r}: allowed are 'sum', 'mean' and 'none'")
    if reduction == "none":
        return tensor
    return map_tensors(lambda t: _reduce_one(t, reduction, scale), tensor)


def _reduce_one(tensor: torch.Tensor, reduction: str, scale: float) -> torch.Tensor:
    result = tensor
    if _spread():
        result = _on_wire(tensor).clone(memory_format=torch.contiguous_format)
        dist.all_reduce(result)
        if reduction == "mean":
            result = result / dist.get_world_size()
        result = result.to(tensor.device)
    return result if scale == 1.0 else result * scale


def pad_across_processes(tensor: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Any:
    """The tensors, each padded along `dim` to the longest of any process.

    Args:
        pad_index: the value that fills.
        pad_first: fill at the front instead of the end.

    A tensor without that dimension, or alone, is returned as it is.
    """
    return map_tensors((lambda t: _pad_one(t, dim, pad_index, pad_first)) if _spread() else _same, tensor)


def _pad_one(tensor: torch.Tensor, dim: int, pad_index: float, pad_first: bool) -> torch.Tensor:
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


def concatenate(data: list[Any], dim: int = 0) -> Any:
    """A list of like structures joined into one structure, tensor by tensor, along `dim`."""
    first = data[0]
    if isinstance(first, (list, tuple)):
        return rebuild(first, [concatenate([item[i] for item in data], dim) for i in range(len(first))])
    if isinstance(first, Mapping):
        return rebuild_mapping(first, {key: concatenate([item[key] for item in data], dim) for key in first})
    if not isinstance(first, torch.Tensor):
        raise TypeError(f"can only concatenate tensors, not {type(first).__name__}")
    return torch.cat(data, dim=dim)


def wait_for_everyone() -> None:
    """Return once every process has called this."""
    if not _spread():
        return
    place = topology.current()
    if place.device.type == "cpu":
        dist.barrier()
    else:
        dist.barrier(device_ids=[place.device.index])


def _spread() -> bool:
    return topology.current().num_processes > 1


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _on_wire(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous (gloo is silently wrong on strided slices), without history, on the device that the group serves."""
    return tensor.detach().to(wire_device()).contiguous()


def wire_device() -> torch.device:
    """Where tensors must be for the process group to send them."""
    return topology.current().device

"""Nested structures of tensors: going through them, moving them, measuring and joining them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch


def map_leaves(action: Callable[[Any], Any], data: Any) -> Any:
    """`data` with `action` applied to what is in its lists, tuples, namedtuples, mappings and dataclasses."""
    if isinstance(data, torch.Tensor):
        return action(data)
    if isinstance(data, (list, tuple)):
        return rebuild(data, [map_leaves(action, item) for item in data])
    if (items := items_of(data)) is not None:
        return rebuild_items(data, {name: map_leaves(action, value) for name, value in items.items()})
    return action(data)


def map_tensors(action: Callable[[torch.Tensor], Any], data: Any, *, strict: bool = True) -> Any:
    """`data` with `action` applied to each tensor in it.

    Raises:
        TypeError: something in it is neither a tensor nor a container (only where `strict`; otherwise it is kept).
    """

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return action(value)
        if strict:
            raise TypeError(
                f"expected tensors, or lists, tuples and dicts of them, not {type(value).__name__}; for other objects "
                "use gather_object or gather_for_metrics(..., use_gather_object=True)."
            )
        return value

    return map_leaves(leaf, data)


def is_torch_tensor(tensor: Any) -> bool:
    """Whether it is a tensor."""
    return isinstance(tensor, torch.Tensor)


def recursively_apply(
    func: Callable[..., Any],
    data: Any,
    *args: Any,
    test_type: Callable[[Any], bool] = is_torch_tensor,
    error_on_other_type: bool = False,
    **kwargs: Any,
) -> Any:
    """`data` with `func(item, *args, **kwargs)` in the place of each item for which `test_type` is true.

    Args:
        data: items in lists, tuples, namedtuples, mappings and (which Accelerate leaves alone) dataclasses.
        error_on_other_type: refuse other items; otherwise they are kept.

    Raises:
        TypeError: there is another item, with `error_on_other_type`.
    """

    def leaf(value: Any) -> Any:
        if test_type(value):
            return func(value, *args, **kwargs)
        if error_on_other_type:
            raise TypeError(
                f"Unsupported types ({type(value)}) passed to `{func.__name__}`. Only nested list/tuple/dicts of "
                f"objects that are valid for `{test_type.__name__}` should be passed."
            )
        return value

    return map_leaves(leaf, data)


def honor_type(obj: Any, generator: Iterable[Any]) -> Any:
    """The items of `generator` in a list, tuple or namedtuple of `obj`'s type."""
    return rebuild(obj, list(generator))


def listify(data: Any) -> Any:
    """`data` with lists of numbers in the place of its tensors."""
    return map_tensors(lambda tensor: tensor.tolist(), data, strict=False)


def rebuild(like: Any, items: list[Any]) -> Any:
    """A list, tuple or namedtuple of `like`'s type that holds `items`."""
    if hasattr(like, "_fields"):
        return type(like)(*items)
    return type(like)(items)


def items_of(data: Any) -> Mapping[Any, Any] | None:
    """What a mapping or a dataclass instance holds, by key or field; None of anything else."""
    if isinstance(data, Mapping):
        return data
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return {item.name: getattr(data, item.name) for item in dataclasses.fields(data)}
    return None


def rebuild_items(like: Any, items: dict[Any, Any]) -> Any:
    """A mapping or dataclass instance like `like` that holds `items`; what else it knows, as a defaultdict, is kept."""
    if type(like) is dict:
        return items
    new = copy.copy(like)
    for name, value in items.items():
        if isinstance(like, Mapping):
            new[name] = value
        else:
            object.__setattr__(new, name, value)  # it may be frozen
    return new


def send_to_device(
    tensor: Any, device: torch.device | str | int, non_blocking: bool = False, skip_keys: str | list[str] | None = None
) -> Any:
    """A nested structure with everything that has a `.to` method moved to `device`; other objects are kept.

    Args:
        tensor: tensors and objects with `.to`, in lists, tuples, namedtuples, mappings and dataclasses.
        skip_keys: keys of mappings, or fields of dataclasses, whose values stay where they are.
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
    if (items := items_of(tensor)) is not None:
        skipped = [skip_keys] if isinstance(skip_keys, str) else skip_keys or []
        moved = {
            name: value if name in skipped else send_to_device(value, device, non_blocking, skip_keys)
            for name, value in items.items()
        }
        return rebuild_items(tensor, moved)
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


def concatenate(data: list[Any], dim: int = 0) -> Any:
    """A list of like structures joined into one structure, tensor by tensor, along `dim`; one alone is returned as is.

    Raises:
        TypeError: there is something else than tensors in several.
    """
    first = data[0]
    if len(data) == 1:
        return first
    if isinstance(first, (list, tuple)):
        return rebuild(first, [concatenate([item[i] for item in data], dim) for i in range(len(first))])
    if items_of(first) is not None:
        all_items: list[Any] = [items_of(item) for item in data]
        return rebuild_items(first, {name: concatenate([i[name] for i in all_items], dim) for name in all_items[0]})
    if not isinstance(first, torch.Tensor):
        raise TypeError(f"can only concatenate tensors, not {type(first).__name__}")
    return torch.cat(data, dim=dim)

"""An optimizer's state from a file into the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..precision.scaling import parameters_of
from ..structures import map_tensors
from .layout import CheckpointError
from .manifest import check, checksum_of, reading
from .plain import load_plain
from .streaming import Place, is_whole_storage, read_into, storages_in

Part = Callable[[torch.optim.Optimizer, dict[str, Any]], dict[str, Any]]


def load_optimizer(
    optimizer: torch.optim.Optimizer, path: Path, checksum: str | None, part_of: Part, **arguments: Any
) -> None:
    """Load a file with an optimizer's state dict.

    Its tensors are read into those that the optimizer has already, where they fit, else into new ones.

    Args:
        checksum: of the file; None is not checked.
        part_of: what of the state is for this process's parameters.
        arguments: of `torch.load`.

    Raises:
        CheckpointError: the file is damaged, holds more than tensors and plain values, or its parameter groups are
            others.
    """
    spread = any(hasattr(parameter, "to_local") for parameter in parameters_of(optimizer))
    with reading(path, checksum):
        state = load_plain(path, **{"mmap": True, **arguments})
        offsets = None if spread else storages_in(path, state)
    state = part_of(optimizer, state)
    places: list[Place] = []
    if offsets is not None:
        state = {**state, "state": _with_destinations(optimizer, state, offsets, places)}
        check(path, read_into(path, places), checksum)
    elif checksum is not None:
        check(path, checksum_of(path), checksum)
    filled = {id(place.tensor) for place in places}
    if not spread:  # else each process takes its part, a copy
        state = map_tensors(lambda t: t if id(t) in filled else t.clone(), state, strict=False)  # not mapped any more
    try:
        optimizer.load_state_dict(state)
    except ValueError as error:
        raise CheckpointError(f"{path} does not fit the optimizer: {error}") from None
    keep_types(optimizer, state)


def keep_types(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Put back what was saved in another type than its parameter's (float32 masters of bf16): torch casts it."""
    for number, parameter in _by_number(optimizer, saved).items():
        entries, now = saved["state"].get(number), optimizer.state.get(parameter)
        if not isinstance(entries, dict) or not isinstance(now, dict):
            continue
        for name, value in entries.items():
            there = now.get(name)
            if isinstance(value, torch.Tensor) and isinstance(there, torch.Tensor) and there.dtype != value.dtype:
                now[name] = _as_spread(value, there)


def _as_spread(value: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    if not hasattr(example, "to_local"):
        return value.to(example.device)
    from ..strategies.dtensors import like  # not light, and rare

    return like(value, example)


def _by_number(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> dict[Any, torch.Tensor]:
    """The parameters by the numbers that a state dict gives them."""
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    return dict(zip(numbers, parameters_of(optimizer), strict=False))


def _with_destinations(
    optimizer: torch.optim.Optimizer, saved: dict[str, Any], offsets: dict[int, int], places: list[Place]
) -> dict[Any, Any]:
    """The saved state with tensors to read into in place of the file's; notes which goes where in `places`."""
    by_number = _by_number(optimizer, saved)
    given: dict[int, torch.Tensor] = {}

    def destination(parameter: torch.Tensor | None, name: Any, tensor: torch.Tensor) -> torch.Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in offsets or not is_whole_storage(tensor):
            return tensor
        if address not in given:
            there = None if parameter is None else optimizer.state.get(parameter, {}).get(name)
            fits = isinstance(there, torch.Tensor) and (there.shape, there.dtype) == (tensor.shape, tensor.dtype)
            if there is None or not fits or any(there is place.tensor for place in places):
                device = parameter.device if parameter is not None and tensor.ndim else torch.device("cpu")
                there = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
            given[address] = there
            places.append(Place(offsets[address], there))
        return given[address]

    return {
        number: {
            name: destination(by_number.get(number), name, value) if isinstance(value, torch.Tensor) else value
            for name, value in entries.items()
        }
        if isinstance(entries, dict)
        else entries
        for number, entries in saved["state"].items()
    }

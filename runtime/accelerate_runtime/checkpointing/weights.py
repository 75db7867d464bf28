"""A model's weights from a file into the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..requirements import require_package
from .layout import CheckpointError
from .manifest import check, checksum_of, reading
from .plain import load_plain
from .streaming import Place, is_whole_storage, read_into, storages_in
from .tensors import SafetensorsHeader, identity


def load_weights(model: nn.Module, path: Path, checksum: str | None, **arguments: Any) -> set[str]:
    """Load a file of weights into `model`, on whatever device it is.

    Args:
        checksum: of the file; None is not checked.
        arguments: of `load_state_dict`.

    Returns:
        The names that the file has.

    Raises:
        CheckpointError: the file is damaged, or its names or shapes are not the model's (torch's own message).
    """
    with reading(path, checksum):
        state, offsets = _mapped_safetensors(path) if path.suffix == ".safetensors" else _mapped(path)
    places = _places(model, state, offsets) if not arguments else None
    if places is not None:
        check(path, read_into(path, places), checksum)
        return set(state)
    if checksum is not None:
        check(path, checksum_of(path), checksum)
    _load(model, state, arguments)
    return set(state)


Mapped = tuple[dict[str, Any], dict[str, int]]
"""A state dict that the file is mapped to (not read yet), and where in the file each of its tensors begins."""


def _mapped_safetensors(path: Path) -> Mapped:
    header = SafetensorsHeader(path)
    require_package("safetensors", what=f"reading {path.name}")
    from safetensors.torch import load_file

    state = load_file(path)
    for name, kept in header.further.items():
        if kept in state:
            state[name] = state[kept]
    return state, {name: header.offset(name) for name in header.entries}


def _mapped(path: Path) -> Mapped:
    state = load_plain(path, mmap=True)
    offsets = storages_in(path, state) or {}
    return state, {
        name: offsets[address]
        for name, tensor in state.items()
        if isinstance(tensor, torch.Tensor) and is_whole_storage(tensor)
        if (address := tensor.untyped_storage().data_ptr()) in offsets
    }


def _places(model: nn.Module, state: dict[str, Any], offsets: dict[str, int]) -> list[Place] | None:
    """Where the file's tensors go; None if `load_state_dict` has more to do than to copy each once."""
    if not all(_only_copies(module) for module in model.modules()):
        return None
    wanted = model.state_dict()
    if wanted.keys() != state.keys() or not _is_its_own(model, wanted):
        return None
    places: list[Place] = []
    read: set[int] = set()
    filled: set[Any] = set()
    for name, tensor in wanted.items():
        saved = state[name]
        if name not in offsets or not isinstance(tensor, torch.Tensor) or _overlaps_itself(tensor):
            if isinstance(tensor, torch.Tensor) and identity(tensor) in filled:
                continue  # tied to one that the file has
            return None
        if (saved.dtype, saved.shape) != (tensor.dtype, tensor.shape) or offsets[name] in read:
            return None
        places.append(Place(offsets[name], tensor))
        read.add(offsets[name])
        filled.add(identity(tensor))
    return places


def _is_its_own(model: nn.Module, state: dict[str, Any]) -> bool:
    """Whether a state dict is made of the model's own tensors, not of copies."""
    own: dict[str, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False))
    own.update(model.named_buffers(remove_duplicate=False))
    return all(
        name in own and isinstance(tensor, torch.Tensor) and tensor.data_ptr() == own[name].data_ptr()
        for name, tensor in state.items()
    )


def _only_copies(module: nn.Module) -> bool:
    own = type(module)._load_from_state_dict.__module__
    return not (
        module._load_state_dict_pre_hooks
        or module._load_state_dict_post_hooks
        or type(module).load_state_dict is not nn.Module.load_state_dict
        or type(module).set_extra_state is not nn.Module.set_extra_state
        or not own.startswith("torch.nn.modules.")
    )


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def _load(model: nn.Module, state: dict[str, Any], arguments: dict[str, Any]) -> None:
    """`load_state_dict`, with the wrapper's `module.` of other writers taken off, and tied names filled in."""
    wanted = model.state_dict()
    if state and all(name.startswith("module.") for name in state) and not any(n.startswith("module.") for n in wanted):
        state = {name.removeprefix("module."): value for name, value in state.items()}
    if len(state) < len(wanted):
        present = {identity(wanted[name]): value for name, value in state.items() if name in wanted}
        for name, tensor in wanted.items():
            if name not in state and isinstance(tensor, torch.Tensor) and identity(tensor) in present:
                state[name] = present[identity(tensor)]
    try:
        model.load_state_dict(state, **arguments)
    except RuntimeError as error:
        raise CheckpointError(f"the weights do not fit the model: {error}") from None

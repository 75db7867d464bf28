"""Where a process stands: its loaders, its accumulation window, and the gradients that the window holds so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..optimizer import AcceleratedOptimizer
from . import layout
from .contents import Contents
from .manifest import Manifest, check
from .streaming import Place, read_into
from .tensors import SafetensorsHeader, save_safetensors


def collect(contents: Contents) -> dict[str, Any]:
    """The position of this process, as numbers, strings, tensors and containers of them."""
    return {
        "loaders": [loader.state_dict() for loader in contents.loaders],
        "accumulation": contents.gradient_state.state_dict(),
        "optimizers": [optimizer.progress() for optimizer in contents.optimizers],
    }


def restore(contents: Contents, position: dict[str, Any]) -> None:
    """Go back to a position that `collect` gave."""
    contents.gradient_state.load_state_dict(position["accumulation"])
    for optimizer, progress in zip(contents.optimizers, position["optimizers"], strict=True):
        optimizer.restore_progress(progress)
    for loader, state in zip(contents.loaders, position["loaders"], strict=True):
        loader.load_state_dict(state)


def save_gradients(contents: Contents, folder: Path) -> None:
    """Write the gradients that no step has used yet, if any."""
    if contents.scaler is not None:
        contents.scaler.settle()  # they are kept with the scale that the scaler's state will have
    found = {
        name: parameter.grad for name, parameter in _pending(contents.optimizers).items() if parameter.grad is not None
    }
    if found:
        save_safetensors(found, folder / layout.gradients(contents.place.process_index))


def load_gradients(contents: Contents, folder: Path, manifest: Manifest) -> None:
    """Restore the gradients of a window that was open."""
    for optimizer in contents.optimizers:
        optimizer.optimizer.zero_grad(set_to_none=True)
    name = layout.gradients(contents.place.process_index)
    if name not in manifest.files:
        return
    path = folder / name
    header, parameters = SafetensorsHeader(path), _all(contents.optimizers)
    places = []
    for key in header.entries:
        parameter = parameters.get(key)
        if parameter is None or not header.fits(key, parameter):
            raise layout.CheckpointError(f"{path} has a gradient {key!r} that fits none of the optimizers' parameters.")
        parameter.grad = torch.zeros_like(parameter)
        places.append(Place(header.offset(key), parameter.grad))
    check(path, read_into(path, places), manifest.files[name].checksum)


def _pending(optimizers: list[AcceleratedOptimizer]) -> dict[str, torch.Tensor]:
    return _all(optimizers, lambda optimizer: optimizer.has_pending_gradients)


def _all(optimizers: list[AcceleratedOptimizer], wanted: Any = lambda optimizer: True) -> dict[str, torch.Tensor]:
    """The optimizers' parameters, each once, as "optimizer.group.parameter" by number."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for o, optimizer in enumerate(optimizers):
        if wanted(optimizer):
            for g, group in enumerate(optimizer.param_groups):
                for p, parameter in enumerate(group["params"]):
                    found[id(parameter)] = f"{o}.{g}.{p}", parameter
    return dict(found.values())

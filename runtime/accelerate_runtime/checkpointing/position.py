"""Where a process stands: its loaders, its accumulation window, and the gradients that the window holds so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..optimizer import AcceleratedOptimizer
from ..precision.scaling import parameters_of
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
        "strategy": (type(contents.strategy).__name__, contents.strategy.progress()),
    }


def restore(contents: Contents, position: dict[str, Any]) -> None:
    """Go back to a position that `collect` gave."""
    contents.gradient_state.load_state_dict(position["accumulation"])
    for optimizer, progress in zip(contents.optimizers, position["optimizers"], strict=True):
        optimizer.restore_progress(progress)
    for loader, state in zip(contents.loaders, position["loaders"], strict=True):
        loader.load_state_dict(state)
    name, progress = position.get("strategy", (None, None))
    if name == type(contents.strategy).__name__:
        contents.strategy.restore_progress(progress)


def save_gradients(contents: Contents, folder: Path) -> None:
    """Write the gradients that no step has used yet, if any."""
    if any(contents.strategy.withheld(contents.unwrap(model)) for model in contents.models):
        advice = contents.strategy.withheld_advice
        raise layout.CheckpointError(
            "the accumulation window is open, and its gradients are not exchanged yet, which a state of sharded models "
            "cannot hold: call save_state() where a window ends (accelerator.sync_gradients)"
            f"{advice and ', '}{advice}."
        )
    if contents.scaler is not None:
        contents.scaler.settle()  # they are kept with the scale that the scaler's state will have
    found = {name: _local(_gradient(parameter)) for name, parameter in _pending(contents) if parameter.grad is not None}
    if any(gradient.layout is not torch.strided for gradient in found.values()):
        raise layout.CheckpointError(
            "the accumulation window is open and holds sparse gradients, which cannot be saved: call save_state() "
            "where a window ends (accelerator.sync_gradients)."
        )
    if found:
        save_safetensors(found, folder / layout.gradients(contents.place.process_index))


def load_gradients(contents: Contents, folder: Path, manifest: Manifest) -> None:
    """Restore the gradients of a window that was open."""
    for each in _all(contents).values():
        each.grad = None
    name = layout.gradients(contents.place.process_index)
    if name not in manifest.files:
        return
    path = folder / name
    header, parameters = SafetensorsHeader(path), _all(contents)
    places = []
    for key in header.entries:
        parameter = parameters.get(key)
        if parameter is None or not header.fits(key, _local(parameter)):
            raise layout.CheckpointError(f"{path} has a gradient {key!r} that fits no parameter.")
        parameter.grad = torch.zeros_like(parameter)
        places.append(Place(header.offset(key), _local(parameter.grad)))
    check(path, read_into(path, places), manifest.files[name].checksum)


def _pending(contents: Contents) -> list[tuple[str, torch.Tensor]]:
    """The parameters whose gradients no step has used: those of optimizers that wait, and those in no optimizer."""
    waiting = [optimizer for optimizer in contents.optimizers if optimizer.has_pending_gradients]
    if not waiting and contents.optimizers:
        return []
    done = [optimizer for optimizer in contents.optimizers if not optimizer.has_pending_gradients]
    left_out = _ids(done) - _ids(waiting)
    return [(name, parameter) for name, parameter in _all(contents).items() if id(parameter) not in left_out]


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    """The gradient of a parameter, spread as it is: of one that is whole on each process it may be a sum to be made."""
    gradient: Any = parameter.grad
    placements = getattr(parameter, "placements", None)
    if placements is not None and gradient.placements != placements:
        gradient = gradient.redistribute(placements=placements)
    return gradient  # type: ignore[no-any-return]


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """This process's part of a tensor that is spread; another one as it is."""
    part: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def _ids(optimizers: list[AcceleratedOptimizer]) -> set[int]:
    return {id(parameter) for optimizer in optimizers for parameter in parameters_of(optimizer)}


def _all(contents: Contents) -> dict[str, torch.Tensor]:
    """The parameters of models and optimizers, each once, under a name that another process gives it too."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for number, model in enumerate(contents.models):
        for name, weight in contents.unwrap(model).named_parameters():
            found.setdefault(id(weight), (f"model.{number}.{name}", weight))
    for number, optimizer in enumerate(contents.optimizers):
        for index, parameter in enumerate(parameters_of(optimizer.whole)):  # the script's, not an engine's pieces
            found.setdefault(id(parameter), (f"optimizer.{number}.{index}", parameter))
    return dict(found.values())

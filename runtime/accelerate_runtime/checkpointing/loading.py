"""Reading a state back into the objects that it was made of."""

from __future__ import annotations

import logging
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from . import layout, position, random_states
from .agreement import agree
from .contents import Contents
from .folder import finish_interrupted
from .layout import CheckpointError
from .manifest import Manifest, check_files, read_manifest
from .optimizers import load_optimizer
from .plain import load_plain
from .weights import load_weights

logger = logging.getLogger(__name__)


def load(contents: Contents, folder: Path, load_kwargs: dict[str, Any], model_kwargs: dict[str, Any]) -> None:
    """Load the state in `folder`; call it on every process.

    Args:
        load_kwargs: of `torch.load`, for optimizers, schedulers and registered objects.
        model_kwargs: of the models' `load_state_dict`.

    Raises:
        CheckpointError: it is not whole, not ours, or of other objects. Nothing is loaded from a state of which a file
            is missing or has the wrong size.
    """
    place = contents.place
    error: Exception | None = None
    try:
        if place.is_local_main_process:
            finish_interrupted(folder)
    except Exception as failure:
        error = failure
    agree(error, place, f"loading {folder}")
    try:
        _load(contents, folder, load_kwargs, model_kwargs)
    except Exception as failure:
        error = failure
    agree(error, place, f"loading {folder}")


def check_whole(folder: Path) -> Manifest | None:
    """The manifest of a state whose files are all there; None for one that Accelerate wrote.

    Raises:
        CheckpointError: it is neither, or not whole.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder: there is no checkpoint to load.")
    manifest = read_manifest(folder)
    if manifest is not None:
        manifest.check_sizes(folder)
    elif (folder / layout.position(0)).exists():
        raise CheckpointError(f"{folder / layout.MANIFEST} is missing: the checkpoint is not whole.")
    elif not (folder / layout.random_states(0)).exists():
        raise CheckpointError(
            f"{folder} holds no checkpoint: neither {layout.MANIFEST} nor {layout.random_states(0)} is there."
        )
    return manifest


def _load(contents: Contents, folder: Path, load_kwargs: dict[str, Any], model_kwargs: dict[str, Any]) -> None:
    manifest = check_whole(folder)
    models: list[nn.Module] = list(contents.models)
    for hook in contents.load_hooks:
        hook(models, str(folder))
    _check_counts(contents, folder, manifest, len(models))
    rank = contents.place.process_index
    small = [layout.scheduler(index) for index in range(len(contents.schedulers))]
    small += [layout.custom(index) for index in range(len(contents.registered))]
    small += [layout.random_states(rank), layout.position(rank), layout.SCALER]
    if manifest is not None:
        check_files(folder, manifest, small)

    def has(name: str) -> bool:
        return name in manifest.files if manifest is not None else (folder / name).exists()

    def checksum(name: str) -> str | None:
        return manifest.files[name].checksum if manifest is not None else None

    for index, model in enumerate(models):
        shards, target = layout.model_shards(index), contents.strategy.to_load(contents.unwrap(model))
        if (folder / shards).is_dir():
            sharded = _checked_shards(contents, folder, manifest, shards)
            sharded.load_model(target, folder / shards, **model_kwargs)
            continue
        names = (layout.model(index, safe) for safe in (True, False))
        name = next((name for name in names if has(name)), None)
        if name is None:
            raise CheckpointError(f"{folder / layout.model(index, True)} is missing.")
        with contents.strategy.reading(target):
            load_weights(target, folder / name, checksum(name), **model_kwargs)
    for index, optimizer in enumerate(contents.optimizers):
        shards = layout.optimizer_shards(index)
        if (folder / shards).is_dir():
            sharded = _checked_shards(contents, folder, manifest, shards)
            sharded.load_optimizer(contents, optimizer.whole, folder / shards)
            continue
        name = layout.optimizer(index)
        part = contents.strategy.part_of_state
        load_optimizer(optimizer.whole, folder / name, checksum(name), part, **load_kwargs)
    for index, scheduler in enumerate(contents.schedulers):
        scheduler.load_state_dict(load_plain(folder / layout.scheduler(index), **load_kwargs))
    if contents.scaler is not None:
        contents.scaler.load_state_dict(load_plain(folder / layout.SCALER))
    for index, registered in enumerate(contents.registered):
        registered.load_state_dict(load_plain(folder / layout.custom(index), **load_kwargs))
    _load_rank(contents, folder, manifest)


def _checked_shards(contents: Contents, folder: Path, manifest: Manifest | None, name: str) -> ModuleType:
    """What reads shards, once those in the folder `name` are known to be what was written."""
    from . import sharded  # not light, and rare

    if manifest is not None:
        sharded.check_shards(contents, folder, manifest, name)
    return sharded


def _check_counts(contents: Contents, folder: Path, manifest: Manifest | None, models: int) -> None:
    """Every kind of object must be there as often as it was saved."""
    here = contents.counts()
    if manifest is not None:
        saved = manifest.objects
    else:
        saved = {
            **here,
            "optimizers": layout.count(folder, layout.optimizer) or layout.count(folder, layout.optimizer_shards),
            "schedulers": layout.count(folder, layout.scheduler),
            "registered objects": layout.count(folder, layout.custom),
            "scalers": int((folder / layout.SCALER).exists()),
        }
    if models != here["models"]:  # a hook loads some itself
        here, saved = {**here, "models": 0}, {**saved, "models": 0}
    for kind, number in saved.items():
        if here.get(kind, 0) != number:
            raise CheckpointError(
                f"{folder} was saved with {number} {kind}, but there are {here.get(kind, 0)} now: prepare (register) "
                "the same objects before load_state()."
            )


def _load_rank(contents: Contents, folder: Path, manifest: Manifest | None) -> None:
    """What belongs to this process: its position, and at last its random states."""
    place, division = contents.place, contents.strategy.division
    parts = division.place.num_processes if division.shared else None
    alike = manifest is None or (manifest.num_processes, manifest.data_parts) == (place.num_processes, parts)
    rank = place.process_index if alike else division.place.process_index
    name = layout.random_states(rank)
    known = name in manifest.files if manifest is not None else (folder / name).exists()
    states = load_plain(folder / layout.random_states(rank if known else 0))
    if manifest is None:
        contents.gradient_state.step = states.get("step", 0)
        logger.warning(
            "%s was not written by this library: it does not say where the loaders stood. Skip the batches that were "
            "seen with skip_first_batches().",
            folder,
        )
    else:
        if not alike and layout.gradients(0) in manifest.files:
            raise CheckpointError(
                f"{folder} was saved in the middle of a window of {manifest.num_processes} processes with "
                f"{manifest.data_parts or manifest.num_processes} different batches, but there are "
                f"{place.num_processes} with {parts or place.num_processes} now: start as many, spread alike, or load "
                "a state saved where a window ends."
            )
        position.load_gradients(contents, folder, manifest)
        theirs = rank if alike else 0
        position.restore(contents, load_plain(folder / layout.position(theirs)))
    if known:
        random_states.restore(states, place)
    else:
        random_states.restore_apart(states, division.place)

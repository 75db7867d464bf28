"""Writing a state, at once or in the background."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .. import __version__, topology
from ..collectives import all_gather_object
from ..devices import CPU
from ..topology import Topology
from . import layout, position, random_states
from .agreement import agree
from .contents import Contents
from .folder import Stage
from .layout import CheckpointError
from .manifest import Manifest
from .plain import save_plain, unsafe_classes
from .snapshot import snapshot
from .tensors import save_safetensors

if TYPE_CHECKING:
    from .sharded import Shards

logger = logging.getLogger(__name__)


class Saver:
    """Saves states, one at a time. A background save that failed raises where the next save, load or end meets it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._doing = ""
        self._group: Any = None
        atexit.register(self._finish_at_exit)

    def save(
        self,
        contents: Contents,
        folder: Path,
        *,
        safe: bool,
        writes: bool,
        background: bool,
        afterwards: Callable[[], None],
    ) -> None:
        """Save a state to `folder`; call it on every process.

        Args:
            safe: weights as safetensors.
            writes: whether this process writes what all processes have in common.
            background: return as soon as the state is copied, and write while training goes on. One state at a time: a
                save waits for the one before, so that there is never more than one copy in memory.
            afterwards: called where the state was written, once it is in place.

        Raises:
            CheckpointError, OSError: it cannot be written. What was in `folder` is untouched.
        """
        place, doing = contents.place, f"saving {folder}"
        sharded = contents.strategy.sharded_states
        self.wait(place)
        stage = _open_stage(Path(os.path.realpath(folder)), place, writes, doing)
        error: Exception | None = None
        mine: Any = None
        items: list[Item] = []
        shards: Shards | None = None
        try:
            models = [] if sharded else contents.models
            weights = [contents.strategy.saved_weights(contents.unwrap(model)) for model in models]
            for hook in contents.save_hooks:
                hook(contents.models, weights, str(stage.path))
            position.save_gradients(contents, stage.path)
            mine = random_states.collect(place), position.collect(contents)
            if sharded:
                shards, optimizers = _shards(contents), []
            else:
                optimizers = [optimizer.state_dict() for optimizer in contents.optimizers]
            if writes:
                items = _in_common(contents, weights, optimizers, safe)
        except Exception as failure:
            error = failure
        _agree(error, place, doing, stage if writes else None)
        ranks = all_gather_object(mine)
        work: _Work | None = None
        if writes or shards is not None:
            try:
                if writes:
                    items += _of_ranks(ranks, contents.gradient_state.step)
                work = _Work(stage, items, _manifest(contents) if writes else None, afterwards, shards)
                if background:
                    work = work.copied(self._group_of_its_own() if shards is not None else None)
                else:
                    work.write()
            except Exception as failure:
                error = failure
        _agree(error, place, doing, stage if writes else None)
        if background and work is not None:
            self._start(work, doing)

    def _group_of_its_own(self) -> Any:
        """A process group for the background: its messages must not meet those of training."""
        if self._group is None:
            self._group = dist.new_group(backend=CPU.backend)
            topology.before_shutdown(self._let_go)
        return self._group

    def _let_go(self) -> None:
        self._group = None

    def wait(self, place: Topology) -> None:
        """Wait for a background save, and raise what stopped it; call it on every process."""
        if not self._doing and place.num_processes == 1:
            return
        if self._thread is not None:
            self._thread.join()
        error, doing = self._error, self._doing or "a save in the background"
        self._thread, self._error, self._doing = None, None, ""
        agree(error, place, doing)

    def _start(self, work: _Work, doing: str) -> None:
        def run() -> None:
            try:
                work.write()
            except Exception as failure:
                work.stage.abandon()
                self._error = failure

        self._doing = doing
        self._thread = threading.Thread(target=run, name="accelerate_runtime save_state")
        self._thread.start()

    def _finish_at_exit(self) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            sys.stderr.write(f"accelerate_runtime: {self._doing} failed: {type(self._error).__name__}: {self._error}\n")


def _agree(error: Exception | None, place: Topology, doing: str, stage: Stage | None) -> None:
    """`agree`, and remove what was staged where it failed."""
    try:
        agree(error, place, doing)
    except Exception:
        if stage is not None:
            stage.abandon()
        raise


def _open_stage(folder: Path, place: Topology, writes: bool, doing: str) -> Stage:
    """The stage, made by who writes; the others learn where it is."""
    stage, error = Stage(folder), None
    if writes:
        try:
            stage.open()
        except Exception as failure:
            error = failure
    agree(error, place, doing)
    if place.num_processes > 1:
        stage.path = Path(all_gather_object(str(stage.path))[0])
    return stage


Item = tuple[str, Any, bool]
"""A file's name, what goes into it, and whether that is weights to be written as safetensors."""


class _Work:
    """Everything that is left to do once the state is collected."""

    def __init__(
        self,
        stage: Stage,
        items: list[Item],
        manifest: Manifest | None,
        afterwards: Callable[[], None],
        shards: Shards | None = None,
    ) -> None:
        self.stage, self.items, self.manifest, self.afterwards = stage, items, manifest, afterwards
        self.shards = shards

    def copied(self, group: Any) -> _Work:
        """The same work on a copy of what is to be written.

        Args:
            group: the process group that shards are written over.
        """
        objects = snapshot([value for _, value, _ in self.items])
        items = [(name, value, safe) for (name, _, safe), value in zip(self.items, objects, strict=True)]
        shards = None if self.shards is None else self.shards.copied(group)
        return _Work(self.stage, items, self.manifest, self.afterwards, shards)

    def write(self) -> None:
        folder, checksums = self.stage.path, dict[str, str]()
        if self.shards is not None:  # before all else: the processes write them together
            checksums |= self.shards.write(folder)
        for name, value, safe in self.items:
            try:
                if safe:
                    save_safetensors(value, folder / name)
                else:
                    checksums[name] = save_plain(value, folder / name)
                    _warn_of_code(folder / name)
            except (OSError, CheckpointError):
                raise
            except Exception as failure:
                raise CheckpointError(f"{name} could not be written: {failure}") from failure
        if self.manifest is None:
            return
        self.manifest.record(folder, checksums)
        self.manifest.write(folder)
        self.stage.commit()
        self.afterwards()


def _shards(contents: Contents) -> Shards:
    from .sharded import Shards  # not light, and rare

    return Shards.of(contents)


def _in_common(
    contents: Contents, weights: list[dict[str, Any]], optimizers: list[dict[str, Any]], safe: bool
) -> list[Item]:
    """What is the same on all processes."""
    items: list[Item] = []
    for index, state in enumerate(weights):
        items.append((layout.model(index, safe), state, safe))
    for index, state in enumerate(optimizers):
        items.append((layout.optimizer(index), state, False))
    for index, scheduler in enumerate(contents.schedulers):
        items.append((layout.scheduler(index), scheduler.state_dict(), False))
    if contents.scaler is not None:
        items.append((layout.SCALER, contents.scaler.state_dict(), False))
    for index, registered in enumerate(contents.registered):
        items.append((layout.custom(index), registered.state_dict(), False))
    return items


def _of_ranks(ranks: list[Any], step: int) -> list[Item]:
    """What each process has of its own: random states, and where it stands."""
    items: list[Item] = []
    for rank, (random, where) in enumerate(ranks):
        items.append((layout.random_states(rank), {"step": step, **random}, False))
        items.append((layout.position(rank), where, False))
    return items


def _manifest(contents: Contents) -> Manifest:
    versions = {"accelerate_runtime": __version__, "torch": str(torch.__version__)}
    division = contents.strategy.division
    parts = division.place.num_processes if division.shared else None
    return Manifest(contents.place.num_processes, contents.counts(), versions, parts)


def _warn_of_code(path: Path) -> None:
    """Say now, not when it is loaded, that a file holds more than tensors and plain values."""
    unsafe = unsafe_classes(path)
    if unsafe:
        logger.warning(
            "%s holds objects of %s: load_state() will ask for load_kwargs={'weights_only': False} to read it",
            path.name,
            ", ".join(sorted(unsafe)),
        )

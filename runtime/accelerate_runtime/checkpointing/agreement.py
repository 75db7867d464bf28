"""What one process meets, all learn: else the others would wait for it."""

from __future__ import annotations

from ..collectives import all_gather_object
from ..topology import Topology
from .layout import CheckpointError


def agree(error: Exception | None, place: Topology, doing: str) -> None:
    """Call it on every process after work that may fail: raises on all of them where it failed on one.

    Args:
        error: what happened here.
        doing: the work, for the others' message ("saving checkpoint_3").
    """
    if place.num_processes > 1:
        mine = None if error is None else f"{type(error).__name__}: {error}"
        for rank, theirs in enumerate(all_gather_object(mine)):
            if theirs is not None and error is None:
                error = CheckpointError(f"{doing} failed on process {rank}: {theirs}")
    if error is not None:
        raise error

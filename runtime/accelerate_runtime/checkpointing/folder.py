"""A folder that appears whole or not at all, and numbered folders of which only the latest are kept.

Files are written beside the folder (or, where it exists already, inside it) in a folder of their own. Its manifest,
written last, is the moment of truth: before it, nothing has happened; after it, the state is whole, and what is left to
do is to move it in place. Who finds it there (the next save, or a load) finishes the move.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from .layout import MANIFEST, CheckpointError, numbered
from .manifest import flush, read_manifest

_INSIDE = ".saving"


class Stage:
    """Where a state is written before it is one.

    Args:
        target: the folder that it will be.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target / _INSIDE if target.exists() else _beside(target)

    def open(self) -> None:
        """Make the stage, without what an interrupted save left there (a whole state is put in place first)."""
        if self.target.exists() and not self.target.is_dir():
            raise CheckpointError(f"{self.target} is a file: a state is saved to a folder.")
        finish_interrupted(self.target)
        self.path = Stage(self.target).path  # the target may be there only now
        for left in (_beside(self.target), self.target / _INSIDE):
            shutil.rmtree(left, ignore_errors=True)
        self.path.mkdir(parents=True)

    def commit(self) -> None:
        """Put the staged state, whose manifest is written, in place."""
        _put_in_place(self.path, self.target)

    def abandon(self) -> None:
        """Remove what was staged."""
        shutil.rmtree(self.path, ignore_errors=True)


def _beside(target: Path) -> Path:
    return target.parent / f".{target.name}.saving"


def finish_interrupted(target: Path) -> None:
    """Put in place a state of `target` that was written whole when its process was stopped."""
    for stage in (target / _INSIDE, _beside(target)):
        if (stage / MANIFEST).is_file():
            _put_in_place(stage, target)


def _put_in_place(stage: Path, target: Path) -> None:
    if not target.exists():
        stage.rename(target)
        flush(target.parent)
        return
    new, old = read_manifest(stage), read_manifest(target)
    assert new is not None
    for name in new.files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # moved already, before an interruption
            os.replace(stage / name, target / name)
    os.replace(stage / MANIFEST, target / MANIFEST)
    for name in old.files if old is not None else ():
        if name not in new.files:
            (target / name).unlink(missing_ok=True)
    shutil.rmtree(stage, ignore_errors=True)
    flush(target)


def keep_latest(folder: Path, limit: int) -> None:
    """Remove all numbered states but the `limit` latest."""
    paths = list(numbered(folder).values())
    for path in paths[: max(0, len(paths) - limit)]:
        going = path.parent / f".{path.name}.deleting"  # so that nobody takes what is left of it for a state
        shutil.rmtree(going, ignore_errors=True)
        path.rename(going)
    for left in folder.glob(".checkpoint_*.deleting"):
        shutil.rmtree(left, ignore_errors=True)


def is_whole(folder: Path) -> bool:
    """Whether `folder` is a state of ours of which every file is there in its full size."""
    try:
        finish_interrupted(folder)
        manifest = read_manifest(folder)
        if manifest is not None:
            manifest.check_sizes(folder)
    except CheckpointError:
        return False
    return manifest is not None

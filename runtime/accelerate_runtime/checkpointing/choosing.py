"""Which folder a state is saved to, and which one is loaded."""

from __future__ import annotations

import os
from pathlib import Path

from ..plugins import ProjectConfiguration
from .folder import finish_interrupted, is_whole
from .layout import CheckpointError, checkpoints_of, numbered

PathLike = str | os.PathLike[str]


def to_save(given: PathLike | None, project: ProjectConfiguration) -> Path:
    """The folder for the next state: the one given, or with automatic naming the next number.

    Raises:
        ValueError: no folder is given, or it has no project to be in.
        CheckpointError: the number is taken, or there is a higher one.
    """
    if not project.automatic_checkpoint_naming:
        if given is None:
            raise ValueError(
                "save_state() needs output_dir, unless project_config has automatic_checkpoint_naming=True and a "
                "project_dir"
            )
        return Path(given).expanduser()
    folder = _of_project(project) / f"checkpoint_{project.iteration}"
    latest = max(numbered(folder.parent), default=-1)
    if latest >= project.iteration:
        raise CheckpointError(
            f"{folder.with_name(f'checkpoint_{latest}')} exists already, and is not overwritten. Call load_state() "
            "first, to go on counting from the latest checkpoint, or set ProjectConfiguration(iteration=…)."
        )
    return folder


def to_load(given: PathLike | None, project: ProjectConfiguration) -> Path:
    """The folder to load: the one given; None is the latest that was named automatically, "latest" the latest whole
    one.

    Raises:
        ValueError: nothing is given, and there is no project to look in.
        CheckpointError: there is no such checkpoint.
    """
    if given is not None and given != "latest":
        return Path(given).expanduser()
    if given is None and not project.automatic_checkpoint_naming:
        raise ValueError(
            "load_state() needs input_dir, unless project_config has automatic_checkpoint_naming=True and a project_dir"
        )
    folder = _of_project(project)
    found = newest_whole(folder) if given == "latest" else next(reversed(numbered(folder).values()), None)
    if found is None:
        raise CheckpointError(
            f"{folder} holds no {'whole ' if given else ''}checkpoint (checkpoint_0, checkpoint_1, …)."
        )
    return found


def newest_whole(folder: Path) -> Path | None:
    """The checkpoint of `folder` with the highest number that is whole."""
    for stage in folder.glob(".checkpoint_*.saving"):
        finish_interrupted(folder / stage.name.removeprefix(".").removesuffix(".saving"))
    return next((path for path in reversed(numbered(folder).values()) if is_whole(path)), None)


def offer(failed: Path) -> str:
    """What to load instead of `failed`, in a sentence to follow its error; empty where there is nothing."""
    other = newest_whole(failed.parent) if failed.parent.is_dir() else None
    if other is None or other == failed:
        return ""
    return f" The newest whole checkpoint beside it is {other.name}: load_state({str(other)!r})."


def next_number(project: ProjectConfiguration) -> int:
    """The number after the highest there is, but never a lower one than the project's own count."""
    return max([project.iteration, *(number + 1 for number in numbered(_of_project(project)))])


def _of_project(project: ProjectConfiguration) -> Path:
    if project.project_dir is None:
        raise ValueError("automatic checkpoint naming needs a project: pass Accelerator(project_dir=…)")
    return checkpoints_of(project.project_dir)

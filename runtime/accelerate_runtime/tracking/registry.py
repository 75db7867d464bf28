"""Which trackers there are, and which of them a script asked for."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import warnings
from collections.abc import Iterable, Iterator
from enum import Enum
from importlib import metadata
from typing import Any

from ..requirements import is_installed, require_package
from .base import GeneralTracker

_GROUP = "accelerate_runtime.trackers"
_NO_TRACKERS = ("base", "registry", "running")


def _found_here() -> Iterator[type[GeneralTracker]]:
    """The trackers of this package: each file that holds a class with a `name` is one."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(sys.modules[package].__path__):
        if module.name not in _NO_TRACKERS:
            for value in vars(importlib.import_module(f"{package}.{module.name}")).values():
                if isinstance(value, type) and issubclass(value, GeneralTracker) and hasattr(value, "name"):
                    yield value


_OURS = tuple(dict.fromkeys(_found_here()))
LOGGER_TYPE_TO_CLASS: dict[str, type[GeneralTracker]] = {tracker.name: tracker for tracker in _OURS}
"""The tracker classes by name: ours, and those of `register_tracker_class`."""


class LoggerType(str, Enum):
    """The trackers by name. `LoggerType.ALL` is each one whose client is installed."""

    ALL = "all"
    AIM = "aim"
    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    TRACKIO = "trackio"
    COMETML = "comet_ml"
    MLFLOW = "mlflow"
    CLEARML = "clearml"
    DVCLIVE = "dvclive"
    SWANLAB = "swanlab"
    JSONL = "jsonl"

    def __str__(self) -> str:
        return self.value


Choice = LoggerType | str | type[GeneralTracker] | GeneralTracker


def get_available_trackers() -> list[LoggerType]:
    """Our trackers whose client library is installed ("jsonl", which needs none, is not counted)."""
    found = [tracker.name for tracker in _OURS if any(map(is_installed, tracker.packages))]
    return [kind for kind in LoggerType if kind.value in found]


def register_tracker_class(tracker_class: type[GeneralTracker]) -> None:
    """Let `log_with` find a tracker class by its `name`. Call it before the Accelerator is made.

    Raises:
        ValueError: it is not a subclass of GeneralTracker with a `name` and `requires_logging_directory`.
    """
    _check_class(tracker_class, "register_tracker_class()")
    if tracker_class.name in LOGGER_TYPE_TO_CLASS:
        warnings.warn(
            f"register_tracker_class(): {tracker_class.__name__} takes the place of "
            f"{LOGGER_TYPE_TO_CLASS[tracker_class.name].__name__} as {tracker_class.name!r}",
            stacklevel=2,
        )
    LOGGER_TYPE_TO_CLASS[tracker_class.name] = tracker_class


def find(name: str) -> type[GeneralTracker]:
    """The tracker class of that name: ours, one that was registered, or one that a package offers by entry point.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name in LOGGER_TYPE_TO_CLASS:
        return LOGGER_TYPE_TO_CLASS[name]
    theirs = {point.name: point for point in metadata.entry_points(group=_GROUP)}
    if name in theirs:
        loaded: type[GeneralTracker] = theirs[name].load()
        _check_class(loaded, f"the entry point {name!r} of {_GROUP}")
        return loaded
    known = ", ".join(sorted({*LOGGER_TYPE_TO_CLASS, *theirs, "all"}))
    raise ValueError(f"log_with={name!r}: allowed are {known}, a GeneralTracker, or a list of these")


def filter_trackers(log_with: Any, logging_dir: str | os.PathLike[str] | None = None) -> list[Choice]:
    """The trackers that `log_with` asks for, each once, checked that they can work here.

    Args:
        log_with: a name, LoggerType, tracker class or tracker, or a list of these; None is no tracker; "all" is each
            whose client library is installed.
        logging_dir: where trackers that keep files write them.

    Raises:
        ValueError: a name is unknown, or a tracker needs a logging directory and there is none.
        ImportError: a tracker's client library is not installed; the message has the command that installs it.
    """
    if log_with is None:
        return []
    asked: Iterable[Any] = log_with if isinstance(log_with, (list, tuple)) else [log_with]
    chosen: list[Choice] = []
    for one in asked:
        for tracker in get_available_trackers() if one == "all" else [_check_choice(one)]:
            if tracker not in chosen:
                _check_usable(tracker, logging_dir)
                chosen.append(tracker)
    if not chosen:
        warnings.warn(f"log_with={log_with!r}: no tracker's library is installed; nothing is logged", stacklevel=2)
    return chosen


def kind_of(choice: Choice) -> type[GeneralTracker] | GeneralTracker:
    """What `filter_trackers` returned, with names as classes."""
    return find(str(choice)) if isinstance(choice, str) else choice


def _check_choice(choice: Any) -> Choice:
    if isinstance(choice, GeneralTracker):
        return choice
    if isinstance(choice, type):
        _check_class(choice, "log_with")
        return choice
    if not isinstance(choice, str):
        raise ValueError(f"log_with={choice!r}: pass a name, a LoggerType, a GeneralTracker, or a list of these")
    find(str(choice))
    return LoggerType(choice) if choice in list(LoggerType) else choice


def _check_usable(choice: Choice, logging_dir: str | os.PathLike[str] | None) -> None:
    tracker = kind_of(choice)
    if isinstance(tracker, GeneralTracker):
        return
    if tracker.packages:
        require_package(*tracker.packages, what=f"log_with={tracker.name!r}")
    if tracker.requires_logging_directory and logging_dir is None:
        raise ValueError(
            f"Logging with `{tracker.name}` requires a `logging_dir`: pass project_dir=..., or "
            "project_config=ProjectConfiguration(logging_dir=...)"
        )


def _check_class(tracker_class: Any, place: str) -> None:
    if not (isinstance(tracker_class, type) and issubclass(tracker_class, GeneralTracker)):
        raise ValueError(f"{place}: {tracker_class!r} is not a subclass of GeneralTracker")
    for part in ("name", "requires_logging_directory"):
        if getattr(tracker_class, part, None) in (None, ""):
            raise ValueError(f"{place}: the class {tracker_class.__name__} does not define `{part}`; it must")

"""The trackers of one Accelerator, from start to finish. Lives on the main process."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from .base import BlankTracker, GeneralTracker
from .registry import LOGGER_TYPE_TO_CLASS, Choice, kind_of
from .values import plain


class RunningTrackers:
    """Starts trackers, hands them what is logged, and finishes them, at the latest when the interpreter ends.

    Args:
        chosen: what `filter_trackers` returned.
        logging_dir: where trackers that keep files write them.
    """

    def __init__(self, chosen: list[Choice], logging_dir: str | None) -> None:
        self.chosen = chosen
        self.trackers: list[GeneralTracker] = []
        self._logging_dir = logging_dir
        self._open: list[GeneralTracker] = []
        self._warned = False

    def start(self, project_name: str, config: Mapping[str, Any] | None, init_kwargs: Mapping[str, Any] | None) -> None:
        """Make the trackers, start them and give them the configuration.

        Called again, it finishes those that it made before; trackers that the script made go on.

        Raises:
            ValueError: `init_kwargs` names a tracker that nobody knows (another tracker's entry is not used).
        """
        options = self._options("init_kwargs", init_kwargs)
        given = [choice for choice in self.chosen if isinstance(choice, GeneralTracker)]
        self._finish([tracker for tracker in self._open if tracker not in given])
        self.trackers = []
        for choice in self.chosen:
            self.trackers.append(self._make(choice, project_name, options))
        for tracker in self.trackers:
            if tracker not in self._open:
                tracker.start()
                self._open.append(tracker)
        # Registered after the clients' own: the last is called first.
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)
        if config is not None:
            for tracker in self.trackers:
                tracker.store_init_configuration(dict(config))

    def _options(self, argument: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
        options = {str(name): value for name, value in (given or {}).items()}
        known = {*LOGGER_TYPE_TO_CLASS, *(kind_of(choice).name for choice in self.chosen)}
        for name in options:
            if name not in known:
                raise ValueError(f"{argument}: there is no tracker {name!r}; known are {', '.join(sorted(known))}")
        return options

    def _make(self, choice: Choice, project_name: str, options: dict[str, Any]) -> GeneralTracker:
        tracker = kind_of(choice)
        if isinstance(tracker, GeneralTracker):
            return tracker
        place = [self._logging_dir] if tracker.requires_logging_directory else []
        make: Any = tracker
        made: GeneralTracker = make(project_name, *place, **(options.get(tracker.name) or {}))
        return made

    def log(self, values: Mapping[str, Any], step: int | None, log_kwargs: Mapping[str, Any] | None) -> None:
        """Hand `values` to each tracker, tensors of one number as numbers."""
        if self._not_started("log()"):
            return
        ready = plain(values)
        options = self._options("log_kwargs", log_kwargs) if log_kwargs else {}
        for tracker in self.trackers:
            tracker.log(ready, step=step, **(options.get(tracker.name) or {}))

    def find(self, name: str, unwrap: bool) -> Any:
        """The tracker of that name, or its client's object.

        Raises:
            ValueError: it is not among them.
        """
        if self._not_started("get_tracker()"):
            return BlankTracker()
        for tracker in self.trackers:
            if tracker.name == str(name):
                return tracker.tracker if unwrap else tracker  # type: ignore[attr-defined]
        there = ", ".join(tracker.name for tracker in self.trackers)
        raise ValueError(f"get_tracker({name!r}): the trackers are {there}")

    def finish(self) -> None:
        """Finish the trackers, each even where another fails. Harmless when called twice."""
        self._finish(list(self._open))

    def _finish(self, trackers: list[GeneralTracker]) -> None:
        with ExitStack() as stack:
            for tracker in reversed(trackers):
                self._open.remove(tracker)
                stack.callback(tracker.finish)

    def _at_exit(self) -> None:
        """Finish what the script forgot, but for clients that do so themselves and know whether the script crashed."""
        self._finish([tracker for tracker in self._open if not tracker.ends_with_interpreter])

    def _not_started(self, place: str) -> bool:
        if self.trackers or not self.chosen:
            return not self.trackers
        if not self._warned:
            self._warned = True
            warnings.warn(f"{place} without trackers: init_trackers() was not called; nothing is logged", stacklevel=4)
        return True

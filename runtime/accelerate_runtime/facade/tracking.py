"""Experiment trackers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .settings import Settings

if TYPE_CHECKING:
    from ..tracking.base import GeneralTracker
    from ..tracking.running import RunningTrackers


class Tracking(Settings):
    """The part of an Accelerator that logs. Trackers run on the main process; on others, nothing is done."""

    _trackers: RunningTrackers | None

    @property
    def log_with(self) -> list[Any]:
        """The trackers asked for."""
        return self._trackers.chosen if self._trackers is not None else []

    @property
    def trackers(self) -> list[GeneralTracker]:
        """The trackers that `init_trackers` started; on other processes than the main one, none."""
        return self._trackers.trackers if self._trackers is not None else []

    def init_trackers(
        self, project_name: str, config: Mapping[str, Any] | None = None, init_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Start the trackers of `log_with`. Called again, it ends the runs that it started and starts new ones.

        Args:
            project_name: what each tracker calls its project, experiment or run.
            config: hyper-parameters to keep, by name.
            init_kwargs: for a tracker's name, further arguments of its class: `{"wandb": {"tags": ["a"]}}`.

        Raises:
            ValueError: `init_kwargs` names a tracker that nobody knows (another tracker's entry is not used).
        """
        if self._trackers is not None and self.is_main_process:
            self._trackers.start(project_name, config, init_kwargs)

    def log(
        self, values: Mapping[str, Any], step: int | None = None, log_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Log `values` with each tracker, from the main process.

        Args:
            values: numbers and texts by name; a tensor or array of one number is logged as that number.
            step: the step they belong to.
            log_kwargs: for a tracker's name, further arguments of its `log`.
        """
        if self._trackers is not None and self.is_main_process:
            self._trackers.log(values, step, log_kwargs)

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """The tracker of that name. On other processes, and without trackers, one that swallows everything.

        Args:
            unwrap: give the client library's own object instead.

        Raises:
            ValueError: no tracker has that name.
        """
        if self._trackers is not None and self.is_main_process:
            return self._trackers.find(name, unwrap)
        from ..tracking.base import BlankTracker

        return BlankTracker()

    def _finish_trackers(self) -> None:
        if self._trackers is not None:
            self._trackers.finish()

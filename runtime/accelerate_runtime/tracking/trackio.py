"""Trackio."""

from __future__ import annotations

from typing import Any

from .base import on_main_process
from .runs import RunTracker
from .values import images


class TrackioTracker(RunTracker):
    """Logs to a run of Trackio.

    Args:
        run_name: the project.
        kwargs: arguments of `trackio.init`.
    """

    name = "trackio"
    packages = ("trackio",)

    @on_main_process
    def start(self) -> None:
        import trackio

        self.run = trackio.init(**{"project": self.run_name, **self.init_kwargs})

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Keep `values`; Trackio writes them with the first thing that is logged."""
        self.run.config.update(values)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log anything that Trackio takes; `kwargs` are arguments of `run.log`."""
        self.run.log(values, step=step, **kwargs)

    @on_main_process
    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        import trackio

        for key, value in values.items():
            several = images(value)
            for index, image in enumerate(several):
                self.log({f"{key}/{index}" if len(several) > 1 else key: trackio.Image(image)}, step, **kwargs)

    def write_table(
        self, name: str, columns: list[str] | None, rows: list[list[Any]], step: int | None, **kwargs: Any
    ) -> None:
        import trackio

        self.log({name: trackio.Table(columns=columns, data=rows)}, step, **kwargs)

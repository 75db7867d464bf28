"""Trackio."""

from __future__ import annotations

from typing import Any

from .base import GeneralTracker, on_main_process
from .values import images, table


class TrackioTracker(GeneralTracker):
    """Logs to a run of Trackio.

    Args:
        run_name: the project.
        kwargs: arguments of `trackio.init`.
    """

    name = "trackio"
    requires_logging_directory = False
    packages = ("trackio",)
    ends_with_interpreter = True

    def __init__(self, run_name: str, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.init_kwargs = kwargs
        self.run: Any = None

    @on_main_process
    def start(self) -> None:
        import trackio

        self.run = trackio.init(**{"project": self.run_name, **self.init_kwargs})

    @property
    def tracker(self) -> Any:
        """The run."""
        return self.run

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

    @on_main_process
    def log_table(
        self,
        table_name: str,
        columns: list[str] | None = None,
        data: list[list[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
        **kwargs: Any,
    ) -> None:
        import trackio

        columns, rows = table(columns, data, dataframe)
        self.log({table_name: trackio.Table(columns=columns, data=rows)}, step, **kwargs)

    @on_main_process
    def finish(self) -> None:
        self.run.finish()

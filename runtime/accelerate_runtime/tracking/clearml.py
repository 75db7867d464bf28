"""ClearML."""

from __future__ import annotations

import os
from typing import Any

from .base import GeneralTracker, on_main_process
from .values import images, left_out, plain


class ClearMLTracker(GeneralTracker):
    """Logs to a task of ClearML: the one that the script has initialized, else a new one.

    A name that starts with "train_", "eval_" or "test_" is that series of the chart named by the rest; another one is
    of the series "train".

    Args:
        run_name: the project and the task, over which the environment variables CLEARML_PROJECT and CLEARML_TASK win.
        kwargs: arguments of `clearml.Task.init`.
    """

    name = "clearml"
    requires_logging_directory = False
    packages = ("clearml",)
    ends_with_interpreter = True

    def __init__(self, run_name: str | None = None, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.init_kwargs = kwargs
        self.task: Any = None
        self._is_scripts_own = False

    @on_main_process
    def start(self) -> None:
        from clearml import Task

        self.task = Task.current_task()
        self._is_scripts_own = self.task is not None
        if self.task is None:
            names = {
                "project_name": os.environ.get("CLEARML_PROJECT", self.run_name),
                "task_name": os.environ.get("CLEARML_TASK", self.run_name),
            }
            self.task = Task.init(**{**names, **self.init_kwargs})

    @property
    def tracker(self) -> Any:
        """The task."""
        return self.task

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.task.connect_configuration(values)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log numbers: with a step as points of a chart, else as single values.

        Args:
            kwargs: arguments of the ClearML logger's `report_scalar` or `report_single_value`.
        """
        logger = self.task.get_logger()
        for key, value in plain(values).items():
            if not isinstance(value, (int, float)):
                left_out("ClearML", key, value, "numbers")
            elif step is None:
                logger.report_single_value(name=key, value=value, **kwargs)
            else:
                title, series = _chart(key)
                logger.report_scalar(title=title, series=series, value=value, iteration=step, **kwargs)

    @on_main_process
    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        for key, value in values.items():
            title, series = _chart(key)
            several = images(value)
            for index, image in enumerate(several):
                name = f"{series}/{index}" if len(several) > 1 else series
                self.task.get_logger().report_image(title=title, series=name, iteration=step, image=image, **kwargs)

    def write_table(
        self, name: str, columns: list[str] | None, rows: list[list[Any]], step: int | None, **kwargs: Any
    ) -> None:
        """Log a table; without `columns`, the first row has their names."""
        title, series = _chart(name)
        self.task.get_logger().report_table(
            title=title, series=series, table_plot=[columns, *rows] if columns else rows, iteration=step, **kwargs
        )

    @on_main_process
    def finish(self) -> None:
        """Close the task, unless the script has initialized it."""
        if not self._is_scripts_own:
            self.task.close()


def _chart(name: str) -> tuple[str, str]:
    """The chart's title and the series of a name."""
    series, _, rest = name.partition("_")
    return (rest, series) if series in ("train", "eval", "test") and rest else (name, "train")

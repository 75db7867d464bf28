"""SwanLab."""

from __future__ import annotations

from typing import Any

from .base import on_main_process
from .runs import RunTracker
from .values import images


class SwanLabTracker(RunTracker):
    """Logs to an experiment of SwanLab.

    Args:
        run_name: the project.
        kwargs: arguments of `swanlab.init`.
    """

    name = "swanlab"
    packages = ("swanlab",)

    @on_main_process
    def start(self) -> None:
        import swanlab

        self.run = swanlab.init(**{"project": self.run_name, **self.init_kwargs})

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        import swanlab

        swanlab.config.update(values)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log numbers, texts and SwanLab's own objects; `kwargs` are arguments of `run.log`."""
        import swanlab

        shown = {key: swanlab.Text(value) if isinstance(value, str) else value for key, value in values.items()}
        self.run.log(shown, step=step, **kwargs)

    @on_main_process
    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        import swanlab

        self.log({key: [swanlab.Image(one) for one in images(value)] for key, value in values.items()}, step, **kwargs)

"""Comet."""

from __future__ import annotations

from typing import Any

from .base import GeneralTracker, on_main_process
from .values import images, left_out, plain


class CometMLTracker(GeneralTracker):
    """Logs to an experiment of Comet; the API key stands in Comet's own configuration.

    Args:
        run_name: the project.
        kwargs: arguments of `comet_ml.start` (`online=False` keeps the experiment in a file).
    """

    name = "comet_ml"
    requires_logging_directory = False
    packages = ("comet_ml",)
    ends_with_interpreter = True

    def __init__(self, run_name: str | None, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.init_kwargs = kwargs
        self.writer: Any = None

    @on_main_process
    def start(self) -> None:
        import comet_ml

        self.writer = comet_ml.start(**{"project_name": self.run_name, **self.init_kwargs})

    @property
    def tracker(self) -> Any:
        """The experiment."""
        return self.writer

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.writer.log_parameters(values)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Numbers become metrics, dicts of numbers several metrics, texts "other" entries.

        Args:
            kwargs: arguments of the experiment's `log_metric`, `log_metrics` or `log_other`.
        """
        if step is not None:
            self.writer.set_step(step)
        for key, value in plain(values).items():
            if isinstance(value, (int, float)):
                self.writer.log_metric(key, value, step=step, **kwargs)
            elif isinstance(value, str):
                self.writer.log_other(key, value, **kwargs)
            elif isinstance(value, dict):
                self.writer.log_metrics(value, step=step, **kwargs)
            else:
                left_out("Comet", key, value, "numbers, texts and dicts of numbers")

    @on_main_process
    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        for key, value in values.items():
            for image in images(value):
                self.writer.log_image(image, name=key, step=step, **kwargs)

    def write_table(
        self, name: str, columns: list[str] | None, rows: list[list[Any]], step: int | None, **kwargs: Any
    ) -> None:
        """Log a table as `<name>.csv`; Comet keeps no step with it."""
        self.writer.log_table(f"{name}.csv", rows, headers=columns or False, **kwargs)

    @on_main_process
    def finish(self) -> None:
        self.writer.end()

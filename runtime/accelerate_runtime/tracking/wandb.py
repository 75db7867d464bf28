"""Weights & Biases."""

from __future__ import annotations

from typing import Any

from .base import GeneralTracker, on_main_process
from .values import images, table


class WandBTracker(GeneralTracker):
    """Logs to a run of Weights & Biases.

    Args:
        run_name: the project.
        kwargs: arguments of `wandb.init`.
    """

    name = "wandb"
    requires_logging_directory = False
    packages = ("wandb",)
    ends_with_interpreter = True

    def __init__(self, run_name: str, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.init_kwargs = kwargs
        self.run: Any = None

    @on_main_process
    def start(self) -> None:
        import wandb

        self.run = wandb.init(**{"project": self.run_name, **self.init_kwargs})

    @property
    def tracker(self) -> Any:
        """The run."""
        return self.run

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run.config.update(values, allow_val_change=True)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log anything that wandb takes; `kwargs` are arguments of `run.log`."""
        self.run.log(values, step=step, **kwargs)

    @on_main_process
    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        import wandb

        self.log({key: [wandb.Image(one) for one in images(value)] for key, value in values.items()}, step, **kwargs)

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
        """Log a table; its cells may be wandb's own objects, images among them."""
        import wandb

        columns, rows = table(columns, data, dataframe)
        self.log({table_name: wandb.Table(columns=columns, data=rows)}, step, **kwargs)

    @on_main_process
    def finish(self) -> None:
        self.run.finish()

"""Weights & Biases."""

from __future__ import annotations

from typing import Any

from .base import on_main_process
from .runs import RunTracker
from .values import images


class WandBTracker(RunTracker):
    """Logs to a run of Weights & Biases.

    Args:
        run_name: the project.
        kwargs: arguments of `wandb.init`.
    """

    name = "wandb"
    packages = ("wandb",)

    @on_main_process
    def start(self) -> None:
        import wandb

        self.run = wandb.init(**{"project": self.run_name, **self.init_kwargs})

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

    def write_table(
        self, name: str, columns: list[str] | None, rows: list[list[Any]], step: int | None, **kwargs: Any
    ) -> None:
        """Log a table; its cells may be wandb's own objects, images among them."""
        import wandb

        self.log({name: wandb.Table(columns=columns, data=rows)}, step, **kwargs)

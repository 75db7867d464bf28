"""TensorBoard."""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path
from typing import Any

import yaml

from ..requirements import is_installed
from .base import GeneralTracker, on_main_process
from .values import images, left_out, plain, simple


class TensorBoardTracker(GeneralTracker):
    """Writes event files to `<logging_dir>/<run_name>`.

    Args:
        run_name: the folder of the run.
        logging_dir: the folder of all runs.
        kwargs: arguments of `torch.utils.tensorboard.SummaryWriter`.
    """

    name = "tensorboard"
    requires_logging_directory = True
    packages = ("tensorboard", "tensorboardX")

    def __init__(self, run_name: str, logging_dir: str | os.PathLike[str], **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.logging_dir = os.path.join(logging_dir, run_name)
        self.init_kwargs = kwargs
        self.writer: Any = None

    @on_main_process
    def start(self) -> None:
        module = "torch.utils.tensorboard" if is_installed("tensorboard") else "tensorboardX"
        self.writer = importlib.import_module(module).SummaryWriter(self.logging_dir, **self.init_kwargs)

    @property
    def tracker(self) -> Any:
        """The SummaryWriter."""
        return self.writer

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Keep `values` as hyper-parameters, and in a file `hparams.yml` in a folder named by the time."""
        kept, when = simple(values), str(time.time())
        shown = {key: "None" if value is None else value for key, value in kept.items()}
        self.writer.add_hparams(shown, metric_dict={}, run_name=when)
        self.writer.flush()
        path = Path(self.logging_dir, when, "hparams.yml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(kept, sort_keys=False), encoding="utf-8")

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Numbers become scalars, texts texts, and dicts of numbers several scalars in one chart.

        Args:
            kwargs: arguments of SummaryWriter's `add_scalar`, `add_text` or `add_scalars`.
        """
        for key, value in plain(values).items():
            if isinstance(value, (int, float)):
                self.writer.add_scalar(key, value, global_step=step, **kwargs)
            elif isinstance(value, str):
                self.writer.add_text(key, value, global_step=step, **kwargs)
            elif isinstance(value, dict):
                self.writer.add_scalars(key, value, global_step=step, **kwargs)
            else:
                left_out("TensorBoard", key, value, "numbers, texts and dicts of numbers")
        self.writer.flush()

    @on_main_process
    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log images by name.

        Args:
            values: an array or tensor of four dimensions, which TensorBoard reads as samples, channels, height, width
                unless `dataformats` says otherwise; or an image or a list of them, as arrays of height, width (and
                channels) or PIL images.
            kwargs: arguments of SummaryWriter's `add_images`.
        """
        import numpy as np

        for key, value in values.items():
            if getattr(value, "ndim", 0) == 4:
                self.writer.add_images(key, value, global_step=step, **kwargs)
                continue
            for index, image in enumerate(images(value)):
                pixels = np.asarray(image)
                tag = f"{key}/{index}" if isinstance(value, list) and len(value) > 1 else key
                formats = {"dataformats": "HW" if pixels.ndim == 2 else "HWC", **kwargs}
                self.writer.add_image(tag, pixels, global_step=step, **formats)
        self.writer.flush()

    @on_main_process
    def finish(self) -> None:
        self.writer.close()

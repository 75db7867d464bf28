"""DVCLive."""

from __future__ import annotations

import os
from typing import Any

from .base import GeneralTracker, on_main_process
from .values import images, left_out, plain


class DVCLiveTracker(GeneralTracker):
    """Logs by DVCLive; each `log` is a step of it.

    Args:
        run_name: not used; DVC names its experiments.
        live: a `dvclive.Live` to log to, instead of a new one.
        kwargs: arguments of `dvclive.Live`.
    """

    name = "dvclive"
    requires_logging_directory = False
    packages = ("dvclive",)

    def __init__(self, run_name: str | None = None, live: Any = None, **kwargs: Any) -> None:
        super().__init__()
        self.live = live
        self.init_kwargs = kwargs

    @on_main_process
    def start(self) -> None:
        from dvclive import Live

        if self.live is None:
            self.live = Live(**self.init_kwargs)

    @property
    def tracker(self) -> Any:
        """The `dvclive.Live`."""
        return self.live

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.live.log_params(values)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log numbers and texts, then end DVCLive's step; `kwargs` are arguments of `Live.log_metric`."""
        from dvclive.plots import Metric

        if step is not None:
            self.live.step = step
        for key, value in plain(values).items():
            if Metric.could_log(value):
                self.live.log_metric(key, value, **kwargs)
            else:
                left_out("DVCLive", key, value, "numbers and texts")
        self.live.next_step()

    @on_main_process
    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log images of the current step by name (a name without ending gets `.png`); DVC shows the last step's."""
        if step is not None:
            self.live.step = step
        for key, value in values.items():
            several = images(value)
            stem, ending = os.path.splitext(key)
            for index, image in enumerate(several):
                number = f"_{index}" if len(several) > 1 else ""
                self.live.log_image(f"{stem}{number}{ending or '.png'}", image, **kwargs)

    @on_main_process
    def finish(self) -> None:
        self.live.end()

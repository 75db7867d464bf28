"""Aim."""

from __future__ import annotations

import os
from typing import Any

from .base import GeneralTracker, on_main_process
from .values import images, left_out, plain


class AimTracker(GeneralTracker):
    """Logs to a run in a local repository of Aim.

    Args:
        run_name: the run's name.
        logging_dir: the repository's folder.
        kwargs: arguments of `aim.Run`.
    """

    name = "aim"
    requires_logging_directory = True
    packages = ("aim",)

    def __init__(self, run_name: str, logging_dir: str | os.PathLike[str] | None = ".", **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.init_kwargs = {"repo": None if logging_dir is None else os.fspath(logging_dir), **kwargs}
        self.writer: Any = None

    @on_main_process
    def start(self) -> None:
        from aim import Run

        self.writer = Run(**self.init_kwargs)
        self.writer.name = self.run_name

    @property
    def tracker(self) -> Any:
        """The run."""
        return self.writer

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.writer["hparams"] = values

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log numbers, texts and Aim's own objects; `kwargs` are arguments of `Run.track`."""
        import aim

        for key, value in plain(values).items():
            if isinstance(value, str):
                self.writer.track(aim.Text(value), name=key, step=step, **kwargs)
            elif isinstance(value, (int, float)) or type(value).__module__.split(".")[0] == "aim":
                self.writer.track(value, name=key, step=step, **kwargs)
            else:
                left_out("Aim", key, value, "numbers, texts and its own objects")

    @on_main_process
    def log_images(
        self, values: dict[str, Any], step: int | None = None, kwargs: dict[str, Any] | None = None, **more: Any
    ) -> None:
        """Log images by name.

        Args:
            values: for each name an image, a list of images, or a tuple of an image and its caption.
            kwargs: `{"aim_image": arguments of aim.Image, "track": arguments of Run.track}`; may be passed by name too.
        """
        import aim

        options = {**(kwargs or {}), **more}
        for name in options:
            if name not in ("aim_image", "track"):
                raise TypeError(f"log_images() of the tracker 'aim' takes aim_image=... and track=..., not {name!r}")
        for key, value in values.items():
            shown, caption = value if isinstance(value, tuple) else (value, "")
            made = [aim.Image(image, caption=caption, **options.get("aim_image", {})) for image in images(shown)]
            track = made if len(made) > 1 else made[0]
            self.writer.track(track, name=key, step=step, **options.get("track", {}))

    @on_main_process
    def finish(self) -> None:
        self.writer.close()

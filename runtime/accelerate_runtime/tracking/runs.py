"""What the clients have in common that give a run: made with a project and keywords, and finished."""

from __future__ import annotations

from typing import Any

from .base import GeneralTracker, on_main_process


class RunTracker(GeneralTracker):
    """Logs to a client's run, which `start` of a subclass makes.

    Args:
        run_name: the project.
        kwargs: arguments of the client's `init`.
    """

    requires_logging_directory = False
    ends_with_interpreter = True

    def __init__(self, run_name: str, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.init_kwargs = kwargs
        self.run: Any = None

    @property
    def tracker(self) -> Any:
        """The run."""
        return self.run

    @on_main_process
    def finish(self) -> None:
        self.run.finish()

"""What a tracker is, and the one that stands in for it on other processes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from .. import topology
from .values import table

P = ParamSpec("P")
R = TypeVar("R")


def on_main_process(method: Callable[P, R]) -> Callable[P, R | None]:
    """Decorator of a tracker's methods: elsewhere than on the main process, nothing is done and None is returned.

    It asks when the method is called, and sets up no processes. A class with `main_process_only = False` runs
    everywhere.
    """

    @functools.wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R | None:
        if getattr(args[0], "main_process_only", False) and topology.rank() != 0:
            return None
        return method(*args, **kwargs)

    return run


class GeneralTracker:
    """Base of all trackers. An Accelerator calls `start`, `store_init_configuration`, `log` and `finish`.

    A subclass says, as class attributes, its `name` and whether it `requires_logging_directory`, and has a property
    `tracker`: the client library's own object. It is made with the project's name, the logging directory (if required)
    and what the script put into `init_kwargs`.

    Raises:
        NotImplementedError: a subclass lacks one of these three.
    """

    name: str
    requires_logging_directory: bool
    main_process_only = True
    packages: tuple[str, ...] = ()
    """Packages that are needed, any one of them; the first is the one to install."""
    ends_with_interpreter = False
    """Whether the client itself keeps what was logged, and says how the run ended, when a script forgets to finish."""

    def __init__(self) -> None:
        there = dir(self)
        missing = [f"`{part}`" for part in ("name", "requires_logging_directory", "tracker") if part not in there]
        if missing:
            raise NotImplementedError(
                f"the tracker class {type(self).__name__} does not define {', '.join(missing)}; each tracker must"
            )

    def start(self) -> None:
        """Open the run. Done here rather than in `__init__`, so that the processes are set up first."""

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Keep the run's hyper-parameters: names to numbers, texts, booleans or None."""

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log numbers and texts by name.

        Args:
            step: the step they belong to.
            kwargs: arguments of the client's own function.
        """

    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log images by name: an array or a PIL image, or a list of them."""
        raise NotImplementedError(f"the tracker {self.name!r} does not log images")

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
        """Log a table: the names of its columns and its rows, or a pandas DataFrame."""
        self.write_table(table_name, *table(columns, data, dataframe), step, **kwargs)

    def write_table(
        self, name: str, columns: list[str] | None, rows: list[list[Any]], step: int | None, **kwargs: Any
    ) -> None:
        """What `log_table` does with a table, whose numbers are plain: for subclasses."""
        raise NotImplementedError(f"the tracker {self.name!r} does not log tables")

    def finish(self) -> None:
        """Close the run."""


class BlankTracker(GeneralTracker):
    """What `get_tracker` gives on other processes: it swallows every call, attribute and item."""

    name = "blank"
    requires_logging_directory = False

    @property
    def tracker(self) -> BlankTracker:
        return self

    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        return None

    def log_table(self, table_name: str, *args: Any, **kwargs: Any) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> BlankTracker:
        return self

    def __getitem__(self, key: Any) -> BlankTracker:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        return None

    def __enter__(self) -> BlankTracker:
        return self

    def __exit__(self, *details: object) -> None:
        return None

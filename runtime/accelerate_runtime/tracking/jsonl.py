"""JSON lines: a text file, and no package."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, BinaryIO

from .base import GeneralTracker, on_main_process
from .values import plain


class JSONLinesTracker(GeneralTracker):
    """Appends each log to `<logging_dir>/<run_name>.jsonl`, one line of JSON.

    A line is `{"time": seconds since 1970, "step": 3, "values": {"loss": 0.1}}`; the configuration's has "config"
    instead of "step" and "values", a table's "table" (its name), "columns" and "rows" instead of "values".

    A line is in the file when `log` returns, whatever happens to the process then. A later run of the same name
    appends; a line that an earlier one left torn is taken off. What JSON cannot say is written as text; infinities and
    NaN as Python's json writes them.

    Args:
        run_name: the file's name.
        logging_dir: its folder; made if missing.
    """

    name = "jsonl"
    requires_logging_directory = True

    def __init__(self, run_name: str, logging_dir: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = Path(logging_dir) / f"{run_name}.jsonl"
        self._file: BinaryIO | None = None

    @on_main_process
    def start(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _take_torn_line_off(self.path)
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 (open as long as the run)

    @property
    def tracker(self) -> BinaryIO | None:
        """The open file."""
        return self._file

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self._write({"config": plain(values)})

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Append a line; `kwargs` are further entries of it, beside `values`."""
        self._write({"step": step, "values": plain(values), **kwargs})

    def write_table(
        self, name: str, columns: list[str] | None, rows: list[list[Any]], step: int | None, **kwargs: Any
    ) -> None:
        self._write({"step": step, "table": name, "columns": columns, "rows": rows, **kwargs})

    @on_main_process
    def finish(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file is None or self._file.closed:
            raise ValueError(f"{self.path} is not open: log between init_trackers() and end_training()")
        line = json.dumps({"time": round(time.time(), 3), **entry}, default=_as_json)
        self._file.write(line.encode() + b"\n")


def _as_json(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _take_torn_line_off(path: Path) -> None:
    if not path.exists():
        return
    with open(path, "r+b") as file:
        end = file.seek(0, os.SEEK_END)
        keep = end
        while keep > 0:
            begin = max(0, keep - 65536)
            file.seek(begin)
            newline = file.read(keep - begin).rfind(b"\n")
            if newline >= 0:
                keep = begin + newline + 1
                break
            keep = begin
        if keep < end:
            file.truncate(keep)

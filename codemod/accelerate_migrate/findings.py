"""What a run says about files: findings, per-file results, and the options that shaped them.

These are the only things that cross from the migration into the reports, so they know neither syntax trees nor rules.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum

from accelerate_migrate.changes import opcodes, split_lines


class Severity(str, Enum):
    """How a finding asks to be read (DESIGN: the words)."""

    MIGRATED = "migrated"  # changed; the promises hold
    REVIEW = "review"  # changed; look at what several processes mean here
    MANUAL = "manual"  # a person must act; the place is left as it was
    NOTE = "note"  # nothing to do, worth knowing
    REFUSED = "refused"  # the whole script is left as it was


class Status(str, Enum):
    """What became of one file."""

    MIGRATED = "migrated"  # changed, or would be
    UNCHANGED = "unchanged"  # nothing to do
    REFUSED = "refused"  # something to do, left whole; one finding says why
    ERROR = "error"  # a fault of ours, contained; the file is untouched


class Target(str, Enum):
    """The package that migrated code imports."""

    RUNTIME = "runtime"
    ACCELERATE = "accelerate"

    @property
    def module(self) -> str:
        """The import name: ``accelerate_runtime`` or ``accelerate``."""
        return "accelerate_runtime" if self is Target.RUNTIME else "accelerate"


class Checkpoints(str, Enum):
    """What becomes of the files that a script resumes from."""

    KEEP = "keep"  # the script's own files
    STATE = "state"  # folders of `save_state` and `load_state`


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's word on one place. ``line``/``column`` count from 1 in the file as it was (columns in characters)."""

    code: str
    rule: str
    severity: Severity
    line: int
    column: int
    end_line: int
    message: str


@dataclass(frozen=True, slots=True)
class CellCode:
    """The code of a notebook's cell before and after. ``number`` counts all cells from 1; ``line`` is its first line,
    counted over the code cells, one below the other."""

    number: int
    line: int
    before: str
    after: str

    def versions(self) -> tuple[bytes, bytes]:
        """The code before and after, each line ended."""
        old, new = (f"{code}\n".encode() if code else b"" for code in (self.before, self.after))
        return old, new


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of a run that change what a migration looks like.

    ``select`` and ``ignore`` hold rule codes or prefixes of codes; an empty ``select`` means every rule.
    """

    target: Target = Target.RUNTIME
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    checkpoints: Checkpoints = Checkpoints.KEEP


@dataclass(frozen=True, slots=True)
class FileResult:
    """What became of one file: its bytes before, its bytes after (``None`` where nothing changes), and the findings.

    ``launch_config`` is the text of the launch config that belongs beside the file, or ``None``. A notebook has its
    code ``cells``: the lines of its findings count over these, one below the other.
    """

    path: str
    status: Status
    before: bytes
    after: bytes | None = None
    findings: tuple[Finding, ...] = ()
    launch_config: str | None = None
    encoding: str = "utf-8"
    cells: tuple[CellCode, ...] = ()

    @property
    def launch_config_path(self) -> str | None:
        """Where the launch config belongs: ``train.launch.yaml`` beside ``train.py``."""
        return None if self.launch_config is None else os.path.splitext(self.path)[0] + ".launch.yaml"

    def text_before(self) -> str:
        """The file as text, undecodable bytes kept as surrogates; newlines as they are."""
        return self.before.decode(self.encoding, "surrogateescape")

    def text_after(self) -> str:
        """The migrated file as text (the text before, where nothing changes)."""
        after = self.before if self.after is None else self.after
        return after.decode(self.encoding, "surrogateescape")

    def line_counts(self) -> tuple[int, int]:
        """Lines (added, removed) by the migration."""
        if self.after is None:
            return 0, 0
        added = removed = 0
        for before, after in [cell.versions() for cell in self.cells] or [(self.before, self.after)]:
            for tag, i1, i2, j1, j2 in opcodes(split_lines(before), split_lines(after)):
                if tag != "equal":
                    removed += i2 - i1
                    added += j2 - j1
        return added, removed

    def cell_of(self, line: int) -> CellCode | None:
        """The notebook's cell that a finding's line is in."""
        return next((cell for cell in reversed(self.cells) if cell.line <= line), None)

    def place(self, line: int, column: int | None = None) -> str:
        """A place as a person looks for it: ``12:5``, in a notebook ``cell 7:3:5``."""
        cell = self.cell_of(line)
        shown = f"{line}" if cell is None else f"cell {cell.number}:{line - cell.line + 1}"
        return shown if column is None else f"{shown}:{column}"

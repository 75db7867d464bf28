"""Blank lines and comments between statements: what becomes of the lines above a statement that comes or goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import libcst as cst

Lines: TypeAlias = Sequence[cst.EmptyLine]
_BLANK = cst.EmptyLine(indent=False)


def _blank(line: cst.EmptyLine) -> bool:
    return line.comment is None


def _split_start(lines: Lines) -> tuple[list[cst.EmptyLine], list[cst.EmptyLine]]:
    """The blank lines at the start, and the rest."""
    count = next((i for i, line in enumerate(lines) if not _blank(line)), len(lines))
    return list(lines[:count]), list(lines[count:])


def trimmed(lines: Lines) -> list[cst.EmptyLine]:
    """The lines without blank ones at the end."""
    count = next((i for i in range(len(lines), 0, -1) if not _blank(lines[i - 1])), 0)
    return list(lines[:count])


def without_blank_start(lines: Lines) -> list[cst.EmptyLine]:
    """The lines without blank ones at the start."""
    return _split_start(lines)[1]


def _own(lines: Lines) -> tuple[list[cst.EmptyLine], list[cst.EmptyLine]]:
    """What is further up, and the comment that stands directly above the statement."""
    count = next((i for i in range(len(lines), 0, -1) if _blank(lines[i - 1])), 0)
    return list(lines[:count]), list(lines[count:])


def joined(left: Lines | None, lead: Lines, *, first: bool) -> list[cst.EmptyLine]:
    """The lines above a statement whose predecessor is gone and left ``left``; no more of them blank than there were.

    ``first``: nothing is above them in the block.
    """
    if left is None:
        return list(lead)
    comments = trimmed(left)
    above = list(left[len(comments) :])
    below, rest = _split_start(lead)
    blanks = above if (first and not comments) or len(above) > len(below) else below
    return [*comments, *blanks, *rest]


def kept(lead: Lines, following: Lines | None) -> list[cst.EmptyLine]:
    """What stays of the lines above a statement that goes; ``following`` are those above the next one, if there is one.

    The comment directly above it goes as well where it was the last of its paragraph.
    """
    if following is not None and not (following and _blank(following[0])):
        return list(lead)
    return _own(lead)[0]


def split_for_insert(lead: Lines, new: Any, line: Any) -> tuple[list[cst.EmptyLine], list[cst.EmptyLine]]:
    """The lines above ``new``, which is put before the statement ``line``, and those left between the two.

    The statement keeps the comment directly above it; a function or class keeps its distance, and so do imports.
    """
    above, own = _own(lead)
    blanks = [blank for blank in above if _blank(blank)]
    if isinstance(line, cst.FunctionDef | cst.ClassDef):
        return above, [*(blanks or [_BLANK, _BLANK]), *own]
    if _is_import(new) and not _is_import(line):
        return above, [_BLANK, *own]
    return above, own


def _is_import(line: Any) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Import | cst.ImportFrom)


def stacked(above: Lines, own: Lines, *, first: bool) -> list[cst.EmptyLine]:
    """The lines above something new: those of its place, and its own without a second gap."""
    if first or (above and _blank(above[-1])):
        return [*above, *without_blank_start(own)]
    return [*above, *own]


def led(lines: Sequence[Any], above: Iterable[cst.EmptyLine]) -> list[Any]:
    """The statements with other lines above the first one."""
    first = lines[0]
    return [first.with_changes(leading_lines=tuple(above)), *lines[1:]]

"""The report as a patch that ``git apply`` takes: bytes in, bytes out, with a hunk wherever the tool changes lines."""

from __future__ import annotations

import os
from collections.abc import Sequence

from accelerate_migrate.changes import hunks, opcodes, split_lines
from accelerate_migrate.findings import FileResult
from accelerate_migrate.report import Report, View

NAME = "diff"


def render(report: Report, view: View) -> bytes:
    """A unified diff of all files that change."""
    return b"".join(unified(result, report.bases.get(result.path, "")) for result in report.results)


def unified(result: FileResult, base: str = "") -> bytes:
    """The unified diff of one file, empty where nothing changes.

    The header has no ``diff --git`` line on purpose: without it, git counts the path from the current folder, also in a
    folder deep in a repository.
    """
    if result.after is None or result.after == result.before:
        return b""
    old, new = split_lines(result.before), split_lines(result.after)
    name = _name(result.path, base)
    return b"".join([b"--- " + _quoted("a/" + name) + b"\n", b"+++ " + _quoted("b/" + name) + b"\n", _hunks(old, new)])


def of_cells(result: FileResult) -> bytes:
    """The hunks of a notebook's code, cell by cell: for a person, since the file holds it as JSON."""
    parts = []
    for cell in result.cells:
        if cell.before != cell.after:
            old, new = cell.versions()
            parts.append(_hunks(split_lines(old), split_lines(new), b" cell %d" % cell.number))
    return b"".join(parts)


def _hunks(old: Sequence[bytes], new: Sequence[bytes], section: bytes = b"") -> bytes:
    lines: list[bytes] = []
    for group in hunks(opcodes(old, new)):
        _, i1, _, j1, _ = group[0]
        _, _, i2, _, j2 = group[-1]
        lines.append(b"@@ -%s +%s @@%s\n" % (_range(i1, i2), _range(j1, j2), section))
        for tag, a, b, c, d in group:
            if tag == "equal":
                lines += [_line(b" ", line) for line in old[a:b]]
            else:
                lines += [_line(b"-", line) for line in old[a:b]]
                lines += [_line(b"+", line) for line in new[c:d]]
    return b"".join(lines)


def _line(mark: bytes, line: bytes) -> bytes:
    return mark + line if line.endswith(b"\n") else mark + line + b"\n\\ No newline at end of file\n"


def _range(start: int, end: int) -> bytes:
    size = end - start
    if size == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if size else start, size)


def _name(path: str, base: str) -> str:
    """The path counted from the current folder, or from ``base`` where it lies elsewhere."""
    if os.path.isabs(path) or path.startswith(".."):
        here = os.path.relpath(os.path.realpath(path))
        path = os.path.relpath(path, base or None) if here.startswith("..") else here
    return path.replace(os.sep, "/")


def _quoted(name: str) -> bytes:
    """A file name as git writes it in a patch: quoted as in C where characters are odd, ended by a tab after spaces."""
    raw = os.fsencode(name)
    if any(byte < 32 or byte > 126 or byte in b'"\\' for byte in raw):
        escaped = (
            b"\\%c" % byte if byte in b'"\\' else b"\\%03o" % byte if byte < 32 or byte > 126 else b"%c" % byte
            for byte in raw
        )
        return b'"' + b"".join(escaped) + b'"'
    return raw + b"\t" if b" " in raw else raw

"""A Sphinx extension: docstrings are plain text with `code` and indented code; here they become reStructuredText."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

_CODE = re.compile(r"(`[^`]*`)")
_MARKUP = re.compile(r"(?<=\w)([_*|])(?!\w)")  # a_ and a* are a link and emphasis there
_INDENT = re.compile(r" *")


def to_rst(lines: list[str]) -> list[str]:
    """The lines of a docstring, with code blocks and special characters as reStructuredText has them.

    A block that is indented further than the text around it, after a blank line, is code.
    """
    found: list[str] = []
    code: int | None = None  # how far the text around the code is indented
    for number, line in enumerate(lines):
        here = _indent(line)
        if code is not None and line.strip() and here <= code:
            code = None
        if code is None and line.strip() and number and not lines[number - 1].strip():
            around = next((_indent(before) for before in reversed(lines[:number]) if before.strip()), here)
            if here > around:
                found += [f"{' ' * around}.. code-block:: python", ""]
                code = around
        found.append(line if code is not None else _escape(line))
    return found


def _indent(line: str) -> int:
    return len(_INDENT.match(line)[0])  # type: ignore[index]


def _escape(line: str) -> str:
    parts = _CODE.split(line)
    return "".join(part if part.startswith("`") else _MARKUP.sub(r"\\\1", part) for part in parts)


def _process(app: Sphinx, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_rst(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _process, priority=400)  # before napoleon, which reads "Args:"
    return {"parallel_read_safe": True}

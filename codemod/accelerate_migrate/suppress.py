"""Comments that keep the tool away: ``# accelerate-migrate: skip`` and ``# accelerate-migrate: skip-file``.

Only real comments count: the same words in a string do nothing. A comment behind code covers the whole logical line it
ends, so that it works at the end of a call that spans several lines; one on a line of its own covers the next one.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

_MARK = re.compile(r"#\s*accelerate-migrate:\s*(skip-file|skip)(?![\w-])")
_LAYOUT = {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.COMMENT}


def skip_file(data: bytes) -> bool:
    """Whether a comment asks that the whole file be left alone."""
    return any("skip-file" in kinds for kinds, _ in _logical_lines(data))


def skipped_lines(data: bytes) -> frozenset[int]:
    """The lines (from 1) on which nothing may be changed or reported."""
    found: set[int] = set()
    for kinds, lines in _logical_lines(data):
        if "skip" in kinds:
            found.update(lines)
    return frozenset(found)


def _logical_lines(data: bytes) -> Iterator[tuple[set[str], range]]:
    """What the comments of each logical line ask, and the physical lines it covers, marked lines above included."""
    if b"accelerate-migrate:" not in data:
        return
    kinds: set[str] = set()
    first = 0
    try:
        for token in tokenize.tokenize(io.BytesIO(data).readline):
            if token.type == tokenize.COMMENT and (mark := _MARK.search(token.string)):
                kinds.add(mark[1])
                first = first or token.start[0]
            if token.type == tokenize.NEWLINE or token.type == tokenize.ENDMARKER:
                if kinds:
                    yield kinds, range(first, token.start[0] + 1)
                kinds, first = set(), 0
            elif token.type not in _LAYOUT:
                first = first or token.start[0]
    except (tokenize.TokenError, SyntaxError):  # a file that does not parse is refused elsewhere
        return

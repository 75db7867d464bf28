"""A way to write an edit test: a source, edits that name nodes by their text, and what comes out."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Sequence

import pytest

from accelerate_migrate.edit.apply import apply_edits
from accelerate_migrate.edits import Edit


class Source:
    """A parsed source whose nodes are found by what they say."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.tree = ast.parse(data)

    def expr(self, text: str, nth: int = 0) -> ast.expr:
        """The nth expression that reads ``text``."""
        wanted = ast.unparse(ast.parse(text, mode="eval"))
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.expr) and ast.unparse(n) == wanted]
        return sorted(found, key=lambda node: (node.lineno, node.col_offset))[nth]

    def stmt(self, text: str, nth: int = 0) -> ast.stmt:
        """The nth statement whose first line reads ``text``."""
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.stmt) and ast.unparse(n).split("\n")[0] == text]
        return sorted(found, key=lambda node: (node.lineno, node.col_offset))[nth]


Edits = Callable[[Source], Sequence[Edit]]


@pytest.fixture
def edit() -> Callable[[str, Edits], str]:
    """``edit(source, lambda s: [...])``: the dedented source with its edits."""

    def run(text: str, edits: Edits) -> str:
        source = Source(textwrap.dedent(text).lstrip("\n").encode())
        return apply_edits(source.data, source.tree, edits(source)).decode()

    return run


@pytest.fixture
def becomes(edit: Callable[[str, Edits], str]) -> Callable[[str, str, Edits], None]:
    """``becomes(before, after, edits)``: the edits make one text of the other."""

    def check(before: str, after: str, edits: Edits) -> None:
        assert edit(before, edits) == textwrap.dedent(after).lstrip("\n")

    return check

"""What the analysis raises where a file cannot be migrated safely."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelerate_migrate.analysis.atoms import Site


class Unclear(Exception):
    """The file cannot be migrated safely; says why, for a person, and where.

    ``about`` are the objects that cannot be prepared, where it is about objects: one that is only evaluated with can
    be left as it is instead.
    """

    def __init__(self, message: str, node: ast.AST | None = None, line: int = 1, about: Iterable[Site] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.line: int = getattr(node, "lineno", line)
        self.node = node
        self.about = frozenset(about)

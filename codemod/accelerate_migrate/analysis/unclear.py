"""What the analysis raises where a file cannot be migrated safely."""

from __future__ import annotations

import ast


class Unclear(Exception):
    """The file cannot be migrated safely; says why, for a person, and where."""

    def __init__(self, message: str, node: ast.AST | None = None, line: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.line: int = getattr(node, "lineno", line)
        self.node = node

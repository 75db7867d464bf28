"""A file's edits applied: its bytes and its `ast` tree in, its new bytes out."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Container, Sequence
from typing import Any

import libcst as cst

from ..edits import AddImport, Delete, Edit, EditConflict, Insert, ReplaceStatement
from . import imports
from .locate import RoundTripError, Trees
from .plan import Plan, joined
from .rewrite import Rewriter

__all__ = ["EditConflict", "RoundTripError", "apply_edits"]


def apply_edits(data: bytes, tree: ast.Module, edits: Sequence[Edit], *, exported: Container[str] = ()) -> bytes:
    """The bytes of a file with its edits; every line that no edit is about is as it was.

    ``tree`` is ``ast.parse(data)``, the nodes of which the edits name. An import that the file used before its edits
    and does not use after them goes, unless its name is in ``exported``: the names that other files take from this one.
    """
    if not edits:
        return data
    plan = Plan(joined(tree, edits))
    try:
        module = cst.parse_module(data)
    except (cst.ParserSyntaxError, UnicodeDecodeError) as error:
        raise RoundTripError("libcst cannot read this file, though Python can") from error
    text = _Text(module)
    if text.of(module) != data:
        raise RoundTripError("libcst does not give this file's bytes back")
    new = Rewriter(Trees(tree, module), plan).module()
    result = text.of(new)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            new_tree = ast.parse(result)
    except (SyntaxError, ValueError) as error:
        raise EditConflict(f"the edits together are no Python: {error}") from error
    dropped = {name for name in imports.used_names(tree) - imports.used_names(new_tree) if name not in exported}
    if not dropped and not plan.imports:
        return result
    trees = Trees(new_tree, new, expressions=False)
    changes = _import_edits(new_tree, trees, _lines(result), plan.imports, dropped)
    return text.of(Rewriter(trees, Plan(changes)).module())


def _import_edits(
    tree: ast.Module, trees: Trees, source: Sequence[bytes], wanted: Sequence[AddImport], dropped: set[str]
) -> list[Edit]:
    """What happens to the imports of the edited file, as edits of it."""
    changes: list[Edit] = []
    shorter: dict[int, Any] = {}
    for statement, gone in imports.unused_imports(tree, source, dropped):
        assert isinstance(statement, ast.Import | ast.ImportFrom)
        if len(gone) == len(statement.names):
            changes.append(Delete(statement))
        else:
            shorter[id(statement)] = statement, imports.without(trees.node(statement), statement, gone)
    start, end = imports.run_of_imports(tree, [edit.name for edit in wanted])
    deleted = {id(change.node) for change in changes if isinstance(change, Delete)}
    for module, names in imports.missing(tree, wanted).items():
        known = next((s for s in tree.body[start:end] if _extends(s, module) and id(s) not in deleted), None)
        if known is not None:
            _, small = shorter.get(id(known), (known, trees.node(known)))
            shorter[id(known)] = known, imports.extended(small, names)
        else:
            place, after = imports.place_of(tree, module, names)
            line = f"from {module} import {', '.join(names)}"
            if not tree.body:
                raise EditConflict("an import for a file without statements")
            alone = start == end and start > 0  # right behind a docstring or __future__
            changes.append(Insert(tree.body[place], f"\n{line}" if alone else line, after=after))
    for module in imports.missing_modules(tree, wanted):
        place, after = imports.place_of_module(tree, module)
        changes.append(Insert(tree.body[place], f"import {module}", after=after))
    for statement, small in shorter.values():
        text = trees.module.code_for_node(small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT))
        changes.append(ReplaceStatement(statement, text))
    return changes


def _extends(statement: ast.stmt, module: str) -> bool:
    return (
        isinstance(statement, ast.ImportFrom)
        and statement.module == module
        and not statement.level
        and statement.names[0].name != "*"
    )


def _lines(data: bytes) -> list[bytes]:
    return re.split(rb"\r\n|\n|\r", data)


class _Text:
    """The text of a module, where only the top-level statements that changed are generated again."""

    def __init__(self, module: cst.Module) -> None:
        self._module = module
        self._known: dict[int, str] = {}
        self._alive: list[cst.CSTNode] = []

    def of(self, module: cst.Module) -> bytes:
        """The module's bytes."""
        text = "".join(map(self._part, (*module.header, *module.body, *module.footer)))
        if not module.has_trailing_newline:
            newline = next((end for end in ("\r\n", "\n", "\r") if text.endswith(end)), "")
            text = text.removesuffix(newline)
        elif not text and module is self._module:
            text = module.default_newline
        return text.encode(module.encoding)

    def _part(self, node: cst.CSTNode) -> str:
        known = self._known.get(id(node))
        if known is None:
            known = self._known[id(node)] = self._module.code_for_node(node)
            self._alive.append(node)
        return known

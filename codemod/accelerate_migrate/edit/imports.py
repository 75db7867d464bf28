"""Imports: those that the new text needs, and those that it no longer uses.

Both are done on the edited file, by the same means as everything else: a second, small set of statements changes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import libcst as cst

from ..edits import AddImport
from . import commas

_WORD = re.compile(r"[^\W\d]\w*")


def used_names(tree: ast.Module) -> set[str]:
    """The names that a file reads: loaded, deleted, in ``__all__``, or in the text of an annotation."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Store):
                names.add(node.id)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if node.value is not None and any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
                names |= _strings(node.value)
            if isinstance(node, ast.AnnAssign):
                names |= _strings(node.annotation)
        elif isinstance(node, ast.arg) and node.annotation is not None:
            names |= _strings(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            names |= _strings(node.returns)
        elif _extends_all(node):
            names |= _strings(node)
    return names


def _extends_all(node: ast.AST) -> bool:
    """Whether this is ``__all__.append(...)`` or the like."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "__all__"
    )


def _strings(node: ast.AST) -> set[str]:
    """The words in the strings of an expression."""
    texts = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return {word for text in texts for word in _WORD.findall(text)}


def bound_name(alias: ast.alias) -> str:
    """The name that one part of an import binds: ``import torch.nn`` binds ``torch``."""
    return alias.asname or alias.name.split(".")[0]


# --- unused -----------------------------------------------------------------------------------------------------------


def unused_imports(
    tree: ast.Module, source: Sequence[bytes], dropped: Collection[str]
) -> Iterator[tuple[ast.stmt, list[ast.alias]]]:
    """The imports of ``dropped`` names, with the parts that go: of the file's own level and of functions and classes.

    Those under ``if`` and ``try`` say what happens where something is missing, and one marked ``noqa`` is wanted.
    """
    blocks: list[list[ast.stmt]] = [tree.body]
    while blocks:
        for statement in blocks.pop():
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                blocks.append(statement.body)
            elif isinstance(statement, ast.Import | ast.ImportFrom):
                if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                    continue
                gone = [alias for alias in statement.names if bound_name(alias) in dropped]
                lines = source[statement.lineno - 1 : statement.end_lineno]
                if gone and not any(b"noqa" in line for line in lines):
                    yield statement, gone


def without(tree: Any, statement: ast.Import | ast.ImportFrom, gone: Collection[ast.alias]) -> Any:
    """An import without some of its names, in the layout it has."""
    for i in range(len(statement.names) - 1, -1, -1):
        if any(statement.names[i] is alias for alias in gone):
            names, opening = commas.remove(tree.names, i, opening=_opening(tree), after=None)
            tree = tree.with_changes(names=names)
            if getattr(tree, "lpar", None) is not None:
                tree = tree.with_changes(lpar=tree.lpar.with_changes(whitespace_after=opening))
    return tree


def _opening(tree: Any) -> Any:
    lpar = getattr(tree, "lpar", None)
    return cst.SimpleWhitespace("") if lpar is None else lpar.whitespace_after


# --- new --------------------------------------------------------------------------------------------------------------


def missing(tree: ast.Module, wanted: Sequence[AddImport]) -> dict[str, list[str]]:
    """The names to import, by module, that no import at the file's own level binds already."""
    present = {
        (statement.module, alias.name)
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom) and not statement.level
        for alias in statement.names
        if alias.asname in (None, alias.name)
    }
    result: dict[str, list[str]] = {}
    for edit in (edit for edit in wanted if edit.name):
        names = result.setdefault(edit.module, [])
        if (edit.module, edit.name) not in present and edit.name not in names:
            names.append(edit.name)
    return {module: sorted(names) for module, names in result.items() if names}


def missing_modules(tree: ast.Module, wanted: Sequence[AddImport]) -> list[str]:
    """The modules to import as a whole that no import at the file's own level binds already."""
    present = {
        bound_name(alias)
        for statement in tree.body
        if isinstance(statement, ast.Import)
        for alias in statement.names
        if alias.asname in (None, alias.name)
    }
    return sorted({edit.module for edit in wanted if not edit.name} - present)


def place_of_module(tree: ast.Module, module: str) -> tuple[int, bool]:
    """Where a new ``import module`` goes: among the plain imports that the file starts with, in their order."""
    start, end = run_of_imports(tree)
    plain = start
    while plain < end and isinstance(tree.body[plain], ast.Import):
        if _module(tree.body[plain]) > module:
            return plain, False
        plain += 1
    if plain > start:
        return plain - 1, True
    return (start, False) if start < len(tree.body) else (start - 1, True)


def run_of_imports(tree: ast.Module, names: Collection[str] = ()) -> tuple[int, int]:
    """The run of imports at the top of a file, as a slice of its body: behind the docstring and ``__future__``.

    It is the first run. Where torch comes only in a later one (behind ``os.environ[...] = ...``, say), it is that one,
    unless a function or class, or a use of ``names``, comes first.
    """
    body = tree.body
    start = 1 if ast.get_docstring(tree, clean=False) is not None else 0
    while start < len(body) and _module(body[start]) == "__future__":
        start += 1
    first = start, _end_of_run(body, start)
    run = first
    while not any(_of_torch(statement) for statement in body[slice(*run)]):
        start = run[1]
        while start < len(body) and not isinstance(body[start], ast.Import | ast.ImportFrom):
            if isinstance(body[start], ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                return first
            if any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(body[start])):
                return first
            start += 1
        if start == len(body):
            return first
        run = start, _end_of_run(body, start)
    return run


def _end_of_run(body: Sequence[ast.stmt], start: int) -> int:
    while start < len(body) and isinstance(body[start], ast.Import | ast.ImportFrom):
        start += 1
    return start


def _of_torch(statement: ast.stmt) -> bool:
    return _module(statement).split(".")[0].startswith("torch")


def place_of(tree: ast.Module, module: str, names: Collection[str]) -> tuple[int, bool]:
    """Where a new ``from module import names`` goes: the number of a statement, and whether behind it.

    It follows the imports of torch, or the whole run; where the ``from …`` lines around are sorted, it keeps the order.
    """
    start, end = run_of_imports(tree, names)
    if start == end:
        return (start, False) if start < len(tree.body) else (start - 1, True)
    group = _torch_group(tree.body[start:end])
    if not group:
        return end - 1, True
    froms = [start + i for i in group if isinstance(tree.body[start + i], ast.ImportFrom)]
    keys = [_module(tree.body[i]) for i in froms]
    if len(froms) > 1 and keys == sorted(keys):
        later = next((i for i, key in zip(froms, keys, strict=True) if key > module), None)
        return (froms[-1], True) if later is None else (later, False)
    return start + group[-1], True


def _torch_group(statements: Sequence[ast.stmt]) -> list[int]:
    """The imports that stand together (no blank line between) with the last one of torch."""
    last = next((i for i in range(len(statements) - 1, -1, -1) if _of_torch(statements[i])), None)
    if last is None:
        return []
    first = end = last
    while first > 0 and _adjacent(statements[first - 1], statements[first]):
        first -= 1
    while end + 1 < len(statements) and _adjacent(statements[end], statements[end + 1]):
        end += 1
    group = list(range(first, end + 1))
    keys = [_module(statements[i]) for i in group if isinstance(statements[i], ast.ImportFrom)]
    return group if len(keys) > 1 and keys == sorted(keys) else list(range(first, last + 1))


def _adjacent(first: ast.stmt, second: ast.stmt) -> bool:
    return second.lineno - (first.end_lineno or first.lineno) <= 1


def _module(statement: ast.stmt) -> str:
    if isinstance(statement, ast.ImportFrom):
        return "." * statement.level + (statement.module or "")
    return statement.names[0].name if isinstance(statement, ast.Import) else ""


def extended(tree: Any, names: Sequence[str]) -> Any:
    """``from module import a`` with more names: in their order where the names are sorted, else at the end."""
    for name in names:
        known = [_text(alias.name) for alias in tree.names]
        key: Callable[[str], str] = str if known == sorted(known) else str.lower
        index = len(known)
        if known == sorted(known, key=key):
            index = next((i for i, text in enumerate(known) if key(text) > key(name)), index)
        new = cst.ImportAlias(cst.Name(name))
        tree = tree.with_changes(names=commas.insert(tree.names, index, new, opening=_opening(tree), after=None))
    return tree


def _text(node: Any) -> str:
    return node.value if isinstance(node, cst.Name) else f"{_text(node.value)}.{node.attr.value}"

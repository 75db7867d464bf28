"""The edits of one file sorted by the node that they change, and the conflicts between them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias, TypeVar

from ..edits import (
    AddArgument,
    AddImport,
    AddParameter,
    Delete,
    Edit,
    EditConflict,
    Insert,
    RemoveArgument,
    RemoveParameter,
    RenameKeyword,
    RenameParameter,
    Replace,
    ReplaceStatement,
    Unwrap,
    Wrap,
    place_of,
)

CallEdit: TypeAlias = AddArgument | RemoveArgument | RenameKeyword
FunctionEdit: TypeAlias = AddParameter | RenameParameter | RemoveParameter
_NodeEditT = TypeVar("_NodeEditT", bound="NodeEdit")
NodeEdit: TypeAlias = Replace | ReplaceStatement | Delete | Insert | Unwrap | Wrap | CallEdit | FunctionEdit


class Plan:
    """What is to be done with each node, by the node's identity. Edits that say the same are one edit."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self.replace: dict[int, Replace] = {}
        self.replace_statement: dict[int, ReplaceStatement] = {}
        self.delete: dict[int, Delete] = {}
        self.unwrap: dict[int, Unwrap] = {}
        self.before: defaultdict[int, list[Insert]] = defaultdict(list)
        self.after: defaultdict[int, list[Insert]] = defaultdict(list)
        self.wraps: defaultdict[int, list[Wrap]] = defaultdict(list)  # by the first statement, the widest first
        self.calls: defaultdict[int, list[CallEdit]] = defaultdict(list)
        self.functions: defaultdict[int, list[FunctionEdit]] = defaultdict(list)
        self.imports: list[AddImport] = []
        self.used: set[int] = set()  # the edits that found their node in the new tree
        self.edits: list[NodeEdit] = []
        seen: set[tuple[object, ...]] = set()
        for edit in edits:
            key = _key(edit)
            if key not in seen:
                seen.add(key)
                self._add(edit)
        self._reconcile()

    def _add(self, edit: Edit) -> None:
        if isinstance(edit, AddImport):
            self.imports.append(edit)
            return
        self.edits.append(edit)
        if isinstance(edit, Replace):
            _one(self.replace, edit.node, edit)
        elif isinstance(edit, ReplaceStatement):
            _one(self.replace_statement, edit.node, edit)
        elif isinstance(edit, Delete):
            self.delete[id(edit.node)] = edit
        elif isinstance(edit, Unwrap):
            _one(self.unwrap, edit.node, edit)
        elif isinstance(edit, Insert):
            (self.after if edit.after else self.before)[id(edit.anchor)].append(edit)
        elif isinstance(edit, Wrap):
            if not edit.statements:
                raise EditConflict("a Wrap of no statements")
            self.wraps[id(edit.statements[0])].append(edit)
        elif isinstance(edit, AddParameter | RenameParameter | RemoveParameter):
            self.functions[id(edit.function)].append(edit)
        else:
            self.calls[id(edit.call)].append(edit)

    def _reconcile(self) -> None:
        """What two edits of one node mean: a deletion wins over what else was wanted of the statement."""
        for key in self.delete:
            self.unwrap.pop(key, None)
            self.replace_statement.pop(key, None)
        for key, unwrap in self.unwrap.items():
            if key in self.replace_statement:
                raise _conflict(unwrap, self.replace_statement[key])
        for wraps in self.wraps.values():
            wraps.sort(key=lambda wrap: -len(wrap.statements))
            for wide, narrow in pairwise(wraps):
                if len(wide.statements) == len(narrow.statements):
                    raise _conflict(wide, narrow)

    def __bool__(self) -> bool:
        return bool(self.edits)

    def targets(self) -> Iterator[ast.AST]:
        """The nodes that change."""
        for edit in self.edits:
            yield target(edit)
            if isinstance(edit, Wrap):
                yield from edit.statements[1:]

    def structural(self, statement: ast.stmt) -> bool:
        """Whether an edit takes the statement out of its place, or puts something beside it."""
        key = id(statement)
        return (
            key in self.delete
            or key in self.unwrap
            or key in self.replace_statement
            or key in self.before
            or key in self.after
            or key in self.wraps
        )

    def use(self, edits: NodeEdit | Iterable[NodeEdit]) -> None:
        """Note that edits were applied."""
        self.used.update(id(edit) for edit in (edits if isinstance(edits, list | tuple) else [edits]))

    def unused(self) -> list[NodeEdit]:
        """The edits whose node is not in the new tree."""
        return [edit for edit in self.edits if id(edit) not in self.used]


def target(edit: NodeEdit) -> ast.AST:
    """The node that an edit names."""
    place = place_of(edit)
    assert place is not None, "only an import may leave open where it goes"
    return place


def describe(edit: Edit) -> str:
    """An edit in words, for a message about a conflict."""
    if isinstance(edit, AddImport):
        return f"AddImport({edit.module}.{edit.name})"
    text = getattr(edit, "template", "") or getattr(edit, "header", "") or getattr(edit, "name", "") or ""
    return f"{type(edit).__name__}({text!r}) of line {getattr(target(edit), 'lineno', '?')}"


def _conflict(first: Edit, second: Edit) -> EditConflict:
    return EditConflict(f"{describe(first)} and {describe(second)} change one place")


def _one(table: dict[int, _NodeEditT], node: ast.AST, edit: _NodeEditT) -> None:
    if id(node) in table:
        raise _conflict(table[id(node)], edit)
    table[id(node)] = edit


def _key(edit: Edit) -> tuple[object, ...]:
    """Equal for two edits that say the same."""
    values: list[object] = [type(edit)]
    for name in type(edit).__dataclass_fields__:
        value = getattr(edit, name)
        if isinstance(value, ast.AST):
            value = id(value)
        elif isinstance(value, tuple):
            value = tuple(id(item) for item in value)
        values.append(value)
    return tuple(values)


def joined(tree: ast.Module, edits: Sequence[Edit]) -> list[Edit]:
    """The edits, with neighbouring statements that get the same header under one, unless something comes between."""
    wraps = sorted((e for e in edits if isinstance(e, Wrap)), key=lambda e: e.statements[0].lineno)
    if len(wraps) < 2:
        return list(edits)
    blocks = {id(s): block for node in ast.walk(tree) for block in _blocks(node) for s in block}
    inserted = {(e.anchor, e.after) for e in edits if isinstance(e, Insert)}
    result: list[Wrap] = []
    for wrap in wraps:
        last = result[-1] if result else None
        first = wrap.statements[0]
        block = blocks[id(first)]
        if last is not None and last.header == wrap.header and last.statements[-1] in block:
            follows = block.index(first) == block.index(last.statements[-1]) + 1
            between = (last.statements[-1], True) in inserted or (first, False) in inserted
            blank = first.lineno > (last.statements[-1].end_lineno or 0) + 1
            if follows and not between and not blank:
                result[-1] = Wrap((*last.statements, *wrap.statements), wrap.header)
                continue
        result.append(wrap)
    return [*(e for e in edits if not isinstance(e, Wrap)), *result]


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        held = getattr(node, name, None)
        if isinstance(held, list):
            yield held

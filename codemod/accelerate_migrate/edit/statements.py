"""Blocks: statements that come, go, or move in or out of one, with the comments and blank lines between them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import libcst as cst

from ..edits import EditConflict, Wrap
from . import spacing, templates
from .locate import Path, put, small_statements
from .plan import describe
from .templates import Line

if TYPE_CHECKING:
    from .rewrite import Rewriter

_DEFAULT = cst.MaybeSentinel.DEFAULT
_ELSE: Path = (("orelse", None),)


@dataclass(frozen=True, slots=True)
class _Item:
    """A line of a block with the statements on it: one, or several between semicolons that no edit takes apart."""

    statements: list[ast.stmt]
    line: Any


class Blocks:
    """The block edits of one file."""

    def __init__(self, rewriter: Rewriter) -> None:
        self.rewriter = rewriter
        self.plan = rewriter.plan

    # --- where blocks hang --------------------------------------------------------------------------------------------

    def edited(self, owner: Any, path: Path, statements: list[ast.stmt], old: Any) -> Any:
        """``owner`` with the edited block at ``path``; an ``else`` or ``finally`` that holds nothing any more goes."""
        suite = self.suite(statements, old)
        if suite is None and len(path) > 1 and (path[0][0] == "orelse" or bool(getattr(owner, "handlers", ()))):
            return put(owner, path[:-1], None)
        return put(owner, path, _passing(old) if suite is None else suite)

    def elif_branch(self, node: ast.stmt, old: cst.If) -> Any:
        """What hangs on an ``if`` where the ``elif`` that ``node`` is hung: an ``elif``, an ``else`` or nothing."""
        assert isinstance(node, ast.If)
        if not self.plan.structural(node):
            return self.rewriter.node(node)
        beside = id(node) in self.plan.before or id(node) in self.plan.after or id(node) in self.plan.wraps
        if not beside and id(node) in self.plan.delete:
            self.plan.use(self.plan.delete[id(node)])
            return None
        unwrap = self.plan.unwrap.get(id(node))
        if not beside and unwrap is not None and unwrap.branch == "orelse":
            self.plan.use(unwrap)
            return self._orelse(node, old)
        if not beside and unwrap is not None:
            self.plan.use(unwrap)
            suite = self.suite(node.body, old.body)
            return None if suite is None else cst.Else(suite, leading_lines=old.leading_lines)
        body = cst.IndentedBlock([old.with_changes(leading_lines=())])
        suite = self.suite([node], body)
        return None if suite is None else cst.Else(suite, leading_lines=old.leading_lines)

    def _orelse(self, node: ast.If, old: cst.If) -> Any:
        """The edited ``elif`` or ``else`` of an ``if``."""
        if isinstance(old.orelse, cst.If):
            return self.elif_branch(node.orelse[0], old.orelse)
        if old.orelse is None:
            return None
        suite = self.suite(node.orelse, old.orelse.body)
        return None if suite is None else old.orelse.with_changes(body=suite)

    # --- one block ----------------------------------------------------------------------------------------------------

    def suite(self, statements: list[ast.stmt], old: Any) -> Any:
        """The edited block (``None`` where nothing is left in it): a suite, or the module itself."""
        if isinstance(old, cst.Module):
            lines, dangling = self._lines(self._items(statements, old.body), bare=not old.header)
            return old.with_changes(body=tuple(lines), footer=(*dangling, *old.footer))
        if isinstance(old, cst.SimpleStatementSuite):
            if self._fits_the_line(statements, old.body):
                smalls = self._smalls(statements, old.body)
                return old.with_changes(body=tuple(smalls)) if smalls else None
            lines, dangling = self._lines(self._items(statements, [_line_of(old)]))
            return cst.IndentedBlock(tuple(lines), footer=tuple(dangling)) if lines else None
        lines, dangling = self._lines(self._items(statements, old.body))
        footer = (*dangling, *old.footer)
        if not lines:
            if not any(line.comment for line in footer):
                return None
            lines = [cst.SimpleStatementLine([cst.Pass()])]
        return old.with_changes(body=tuple(lines), footer=footer)

    def _items(self, statements: Sequence[ast.stmt], lines: Sequence[Any]) -> list[_Item]:
        items: list[_Item] = []
        rest = list(statements)
        for line in lines:
            smalls = small_statements(line)
            mine, rest = rest[: len(smalls)], rest[len(smalls) :]
            if len(smalls) == 1 or self._fits_the_line(mine, smalls):
                items.append(_Item(mine, line))
            else:
                items += [_Item([s], part) for s, part in zip(mine, _taken_apart(line), strict=True)]
        return items

    def _fits_the_line(self, statements: Sequence[ast.stmt], smalls: Sequence[Any]) -> bool:
        """Whether all that is wanted of the statements of a line can be done without a second line."""
        if all(id(statement) in self.plan.delete for statement in statements) and not any(
            id(statement) in table for statement in statements for table in (self.plan.before, self.plan.after)
        ):
            return True
        return all(
            not self.plan.structural(statement) or self._small(statement) is not None for statement in statements
        )

    def _small(self, statement: ast.stmt) -> list[Any] | None:
        """The small statements that take the place of one, if that is all that is wanted of it."""
        key = id(statement)
        if key in self.plan.before or key in self.plan.after or key in self.plan.wraps:
            return None
        if key in self.plan.delete:
            return []
        edit = self.plan.replace_statement.get(key)
        if edit is None:
            return None
        lines = templates.statements(edit.template, self.rewriter.holes(edit))
        if len(lines) != 1 or not isinstance(lines[0], cst.SimpleStatementLine) or lines[0].leading_lines:
            return None
        return list(lines[0].body)

    def _smalls(self, statements: Sequence[ast.stmt], smalls: Sequence[Any]) -> list[Any]:
        """The edited small statements of a line."""
        result: list[Any] = []
        for statement, old in zip(statements, smalls, strict=True):
            if not self.plan.structural(statement):
                result.append(self.rewriter.node(statement))
                continue
            new = self._small(statement) or []
            self.plan.use(self.plan.delete.get(id(statement)) or self.plan.replace_statement[id(statement)])
            result += [*new[:-1], new[-1].with_changes(semicolon=old.semicolon)] if new else []
        if result and len(result) < len(smalls):
            result[-1] = result[-1].with_changes(semicolon=smalls[-1].semicolon)
        return result

    def _lines(
        self, items: Sequence[_Item], around: frozenset[int] = frozenset(), bare: bool = True
    ) -> tuple[list[Line], list[cst.EmptyLine]]:
        """The edited lines of a block, and the comments that are left at its end.

        ``around``: the Wraps that these lines are already under; what is inserted at their edges stands outside of
        them. ``bare``: nothing stands above the first line.
        """
        out: list[Any] = []
        left: list[cst.EmptyLine] | None = None  # the lines above a statement that is gone, for what comes next
        i = 0
        while i < len(items):
            item = items[i]
            wrap = self._wrap_at(item, around)
            count = self._span(wrap, items[i:]) if wrap is not None else 1
            following = items[i + count] if i + count < len(items) else None
            lead = spacing.joined(left, item.line.leading_lines, first=bare and not out)
            left = None
            before = [] if around and i == 0 else self._inserted(item.statements[0], after=False)
            if before:
                above, lead = spacing.split_for_insert(lead, before[-1], item.line)
                out += spacing.led(before, spacing.stacked(above, before[0].leading_lines, first=bare and not out))
            if wrap is not None:
                new, dangling = self._wrapped(wrap, items[i : i + count], around)
            else:
                new, dangling = self._replaced(item)
            if new:
                out += spacing.led(new, [*lead, *spacing.without_blank_start(new[0].leading_lines)])
                left = dangling or None
            else:
                left = [*spacing.kept(lead, None if following is None else following.line.leading_lines), *dangling]
            i += count
            after = [] if around and i == len(items) else self._inserted(items[i - 1].statements[-1], after=True)
            if after:
                out += after if left is None else spacing.led(after, left)
                left = None
        return out, spacing.trimmed(left or [])

    def _replaced(self, item: _Item) -> tuple[list[Any], list[cst.EmptyLine]]:
        """The lines that take the place of one, without what stood above it, and the comments left below them."""
        if len(item.statements) > 1:
            smalls = self._smalls(item.statements, small_statements(item.line))
            return ([item.line.with_changes(body=tuple(smalls), leading_lines=())] if smalls else []), []
        statement = item.statements[0]
        if delete := self.plan.delete.get(id(statement)):
            self.plan.use(delete)
            return [], []
        if unwrap := self.plan.unwrap.get(id(statement)):
            self.plan.use(unwrap)
            return self._unwrapped(unwrap.node, item.line, unwrap.branch)
        if edit := self.plan.replace_statement.get(id(statement)):
            self.plan.use(edit)
            lines: list[Any] = list(templates.statements(edit.template, self.rewriter.holes(edit)))
            if not lines:
                raise EditConflict(f"{describe(edit)} has no statement")
            return _with_trailing_comment(lines, item.line), []
        new = self.rewriter.node(statement) if self.rewriter.changes(statement) else None
        if new is None:
            return [item.line.with_changes(leading_lines=())], []
        if isinstance(item.line, cst.SimpleStatementLine):
            new = item.line.with_changes(body=(new.with_changes(semicolon=item.line.body[0].semicolon),))
        return [new.with_changes(leading_lines=())], []

    def _unwrapped(self, node: ast.stmt, line: Any, branch: str) -> tuple[list[Any], list[cst.EmptyLine]]:
        statements: list[ast.stmt] = getattr(node, branch)
        tree = line.body if branch == "body" else line.orelse
        if tree is None or not statements:
            return [], []
        if isinstance(tree, cst.If):
            inner: Sequence[Any] = [tree.with_changes(leading_lines=())]
            footer: Sequence[cst.EmptyLine] = ()
        else:
            suite: Any = tree.body if isinstance(tree, cst.Else) else tree
            simple = isinstance(suite, cst.SimpleStatementSuite)
            inner = [_line_of(suite)] if simple else suite.body
            footer = () if simple else suite.footer
        lines, dangling = self._lines(self._items(statements, inner))
        return lines, [*dangling, *spacing.trimmed(footer)]

    # --- wraps and inserts --------------------------------------------------------------------------------------------

    def _wrap_at(self, item: _Item, around: frozenset[int]) -> Wrap | None:
        wraps = self.plan.wraps.get(id(item.statements[0]), [])
        return next((wrap for wrap in wraps if id(wrap) not in around), None)

    def _span(self, wrap: Wrap, items: Sequence[_Item]) -> int:
        """How many lines a Wrap takes; its statements must stand one after the other."""
        wanted = [id(statement) for statement in wrap.statements]
        found: list[int] = []
        for count, item in enumerate(items, start=1):
            found += [id(statement) for statement in item.statements]
            if found == wanted:
                return count
            if found != wanted[: len(found)]:
                break
        raise EditConflict(f"{describe(wrap)}: its statements are not consecutive lines of one block")

    def _wrapped(
        self, wrap: Wrap, items: Sequence[_Item], around: frozenset[int]
    ) -> tuple[list[Any], list[cst.EmptyLine]]:
        self.plan.use(wrap)
        first = _Item(items[0].statements, items[0].line.with_changes(leading_lines=()))
        lines, dangling = self._lines([first, *items[1:]], around | {id(wrap)})
        if not lines:
            return [], dangling
        body = cst.IndentedBlock(tuple(lines), footer=tuple(dangling))
        return [templates.header(wrap.header).with_changes(body=body)], []

    def _inserted(self, anchor: ast.stmt, *, after: bool) -> list[Any]:
        edits = (self.plan.after if after else self.plan.before).get(id(anchor), [])
        self.plan.use(list(edits))
        return [line for edit in edits for line in templates.statements(edit.template, self.rewriter.holes(edit))]


def _passing(old: Any) -> Any:
    """The block with nothing but ``pass`` in it."""
    if isinstance(old, cst.SimpleStatementSuite):
        return old.with_changes(body=(cst.Pass(),))
    return old.with_changes(body=(cst.SimpleStatementLine([cst.Pass()]),))


def _line_of(suite: cst.SimpleStatementSuite) -> cst.SimpleStatementLine:
    """What stands behind the colon of ``if x: y = 1``, as a line of its own."""
    return cst.SimpleStatementLine(suite.body, trailing_whitespace=suite.trailing_whitespace)


def _taken_apart(line: Any) -> list[Any]:
    """One line for each small statement; the comment stays with the last."""
    lines = [cst.SimpleStatementLine([small.with_changes(semicolon=_DEFAULT)]) for small in line.body]
    lines[0] = lines[0].with_changes(leading_lines=line.leading_lines)
    lines[-1] = lines[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
    return lines


def _with_trailing_comment(lines: list[Any], old: Any) -> list[Any]:
    """The comment at the end of a simple statement's line stays on the first line of what takes its place."""
    first = lines[0]
    if not isinstance(old, cst.SimpleStatementLine) or old.trailing_whitespace.comment is None:
        return lines
    if not isinstance(first, cst.SimpleStatementLine) or first.trailing_whitespace.comment is not None:
        return lines
    return [first.with_changes(trailing_whitespace=old.trailing_whitespace), *lines[1:]]

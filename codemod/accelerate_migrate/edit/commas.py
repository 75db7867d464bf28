"""Lists of arguments, parameters or imported names: one element more or less, in the layout that the list has.

An element's comma holds the whitespace up to the next element, line ends and comments included, so an element that
comes or goes takes over its neighbours' commas. The last element may have none; what follows it is then its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst


def insert(
    elements: Sequence[Any], index: int, new: Any, *, opening: Any, after: str | None, followed: bool = False
) -> tuple[Any, ...]:
    """The list with ``new`` at ``index``.

    ``opening`` is the whitespace after the bracket, ``after`` the name of the field for whitespace behind an element
    that has no comma, if there is one; ``followed``: something else of the list comes behind these elements.
    """
    items = list(elements)
    between = _between(items, opening)
    if index < len(items):
        items.insert(index, new.with_changes(comma=between))
    elif not items:
        items.append(new)
    elif followed or isinstance(items[-1].comma, cst.Comma):
        last = items[-1]
        if isinstance(last.comma, cst.Comma):  # the new element takes the trailing comma; the comment stays where it is
            space = _joined(last.comma.whitespace_after, between.whitespace_after)
            items[-1] = last.with_changes(comma=last.comma.with_changes(whitespace_after=space))
            new = new.with_changes(comma=last.comma.with_changes(whitespace_after=_silent(last.comma.whitespace_after)))
        items.append(new)
    else:
        last = items[-1]
        if after is None:
            return (*items[:-1], last.with_changes(comma=between), new)
        closing = getattr(last, after)
        space = _joined(closing, between.whitespace_after)
        items[-1] = last.with_changes(**{"comma": cst.Comma(whitespace_after=space), after: cst.SimpleWhitespace("")})
        items.append(new.with_changes(**{after: _silent(closing)}))
    return tuple(items)


def remove(elements: Sequence[Any], index: int, *, opening: Any, after: str | None) -> tuple[tuple[Any, ...], Any]:
    """The list without the element at ``index``, and the whitespace after its opening bracket."""
    items = list(elements)
    gone = items.pop(index)
    trailing = isinstance(gone.comma, cst.Comma)
    behind = cst.SimpleWhitespace("")
    if trailing or after is not None:
        behind = gone.comma.whitespace_after if trailing else getattr(gone, after or "")
    if not items:
        return (), cst.SimpleWhitespace("")
    many = cst.ParenthesizedWhitespace
    if index == 0:
        return tuple(items), _joined(opening, behind) if isinstance(opening, many) or _has_comment(behind) else opening
    before = items[index - 1]
    comma = before.comma if isinstance(before.comma, cst.Comma) else cst.Comma()
    space = _joined(comma.whitespace_after, behind)
    if index == len(items) and not isinstance(behind, many) and not _has_comment(space):
        space = behind
    if index < len(items) or trailing:
        items[index - 1] = before.with_changes(comma=comma.with_changes(whitespace_after=space))
    else:
        own = {} if after is None else {after: space}
        items[index - 1] = before.with_changes(comma=cst.MaybeSentinel.DEFAULT, **own)
    return tuple(items), opening


def _between(items: Sequence[Any], opening: Any) -> cst.Comma:
    """The comma between two elements in this layout: one element a line where every element has its own."""
    commas = [item.comma for item in items[:-1] if isinstance(item.comma, cst.Comma)]
    spaces = [comma.whitespace_after for comma in commas]
    if spaces and all(isinstance(space, cst.ParenthesizedWhitespace) for space in spaces):
        return commas[-1].with_changes(whitespace_after=_silent(spaces[-1]))
    if not spaces and items and isinstance(opening, cst.ParenthesizedWhitespace):
        return cst.Comma(whitespace_after=_silent(opening))
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _joined(first: Any, second: Any) -> Any:
    """What is left of two whitespaces when what stood between is gone: the first one's comment, the second's lines."""
    many = cst.ParenthesizedWhitespace
    if isinstance(first, many) and isinstance(second, many):
        return second.with_changes(first_line=first.first_line)
    return second if isinstance(second, many) else first if isinstance(first, many) else second


def _silent(space: Any) -> Any:
    """The same whitespace without comments and blank lines."""
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    return space.with_changes(first_line=cst.TrailingWhitespace(newline=space.first_line.newline), empty_lines=())


def _has_comment(space: Any) -> bool:
    return isinstance(space, cst.ParenthesizedWhitespace) and (
        space.first_line.comment is not None or any(line.comment is not None for line in space.empty_lines)
    )

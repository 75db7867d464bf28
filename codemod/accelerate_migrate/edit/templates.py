"""The text of an edit, parsed, with its holes filled.

A hole is parsed as a name that no program has, and the name's place is then taken by the libcst node that fills it, in
parentheses where the place asks for them.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeAlias

import libcst as cst

from ..edits import EditConflict
from .precedence import bare, fit, is_bracketed

Line: TypeAlias = cst.SimpleStatementLine | cst.BaseCompoundStatement

_HOLE = "_accelerate_migrate_hole_"
_CONFIG = cst.PartialParserConfig(default_indent="    ", default_newline="\n")


@lru_cache(maxsize=512)
def _text(template: str) -> str:
    """The template with names for holes; ``{{`` and ``}}`` are braces."""
    parts: list[str] = []
    for literal, hole, spec, conversion in string.Formatter().parse(template):
        parts.append(literal)
        if hole is not None:
            if not hole.isdigit() or spec or conversion:
                raise EditConflict(f"a hole is written {{0}}, {{1}}, …, not {{{hole}}}: {template!r}")
            parts.append(f"{_HOLE}{hole}")
    return "".join(parts)


@lru_cache(maxsize=512)
def _expression(template: str) -> cst.BaseExpression:
    try:
        return cst.parse_expression(_text(template), _CONFIG)
    except (cst.ParserSyntaxError, ValueError) as error:
        raise EditConflict(f"this is no expression: {template!r}") from error


@lru_cache(maxsize=512)
def _module(template: str) -> cst.Module:
    try:
        return cst.parse_module(_text(template), _CONFIG)
    except (cst.ParserSyntaxError, ValueError) as error:
        raise EditConflict(f"these are no statements: {template!r}") from error


def expression(template: str, holes: Sequence[Any] = (), *, bracketed: bool = True) -> Any:
    """The expression that a template stands for."""
    parsed = _expression(template)
    if not holes:
        return parsed
    filled, used = _filled(parsed, holes, bracketed)
    _all_used(template, holes, used)
    return filled


def statements(template: str, holes: Sequence[Any] = ()) -> list[Line]:
    """The statements that a template stands for; blank lines and comments above the first one are its leading lines."""
    module = _module(template)
    used: set[int] = set()
    lines: list[Line] = []
    for line in module.body:
        if holes:
            line, found = _filled(line, holes, False)
            used |= found
        lines.append(line)
    _all_used(template, holes, used)
    if lines and module.header:
        above = [line if line.comment else line.with_changes(indent=False) for line in module.header]
        lines[0] = lines[0].with_changes(leading_lines=(*above, *lines[0].leading_lines))
    return lines


def header(text: str) -> cst.BaseCompoundStatement:
    """The compound statement of a header such as ``if is_main:``, with a ``pass`` for a body."""
    body = _module(text.rstrip().replace("{", "{{").replace("}", "}}") + "\n    pass\n").body
    if len(body) != 1 or not isinstance(body[0], cst.BaseCompoundStatement):
        raise EditConflict(f"this is no header of a block: {text!r}")
    return body[0]


def _all_used(template: str, holes: Sequence[Any], used: set[int]) -> None:
    if len(used) != len(holes):
        raise EditConflict(f"{len(holes)} nodes were given for the {len(used)} holes of {template!r}")


def _hole(node: object) -> int | None:
    if isinstance(node, cst.Name) and node.value.startswith(_HOLE):
        return int(node.value[len(_HOLE) :])
    return None


def _fill(name: cst.Name, index: int, holes: Sequence[Any]) -> Any:
    if index >= len(holes):
        raise EditConflict(f"hole {{{index}}} has no node")
    value = holes[index]
    if isinstance(value, tuple | list):
        value = _tuple(value)
    if name.lpar and isinstance(value, cst.BaseExpression):
        value = value.with_changes(lpar=(*name.lpar, *value.lpar), rpar=(*value.rpar, *name.rpar))
    return value


def _tuple(elements: Sequence[Any]) -> cst.Tuple:
    """The bare tuple of a subscript as a tuple that can stand elsewhere."""
    new: list[cst.BaseElement] = []
    for element in elements:
        if isinstance(element.slice, cst.Slice):
            raise EditConflict("a slice cannot stand outside of a subscript")
        kind = cst.StarredElement if element.slice.star else cst.Element
        new.append(kind(element.slice.value, comma=element.comma))
    return cst.Tuple(new)


def _filled(node: Any, holes: Sequence[Any], bracketed: bool) -> tuple[Any, set[int]]:
    """A template's node with the holes in it filled, and the numbers of these."""
    number = _hole(node)
    if number is not None:
        return bare(_fill(node, number, holes)), {number}
    used: set[int] = set()
    changes: dict[str, Any] = {}
    for field in fields(node):
        value = getattr(node, field.name)
        inside = bracketed or is_bracketed(node, field.name)
        if isinstance(value, cst.CSTNode):
            new, found = _child(value, node, field.name, holes, inside)
        elif isinstance(value, tuple | list):
            pairs = [
                _child(item, node, field.name, holes, inside) if isinstance(item, cst.CSTNode) else (item, set[int]())
                for item in value
            ]
            new, found = tuple(item for item, _ in pairs), set[int]().union(*(found for _, found in pairs))
        else:
            continue
        if found:
            used |= found
            changes[field.name] = new
    return (node.with_changes(**changes) if changes else node), used


def _child(child: Any, parent: Any, field: str, holes: Sequence[Any], bracketed: bool) -> tuple[Any, set[int]]:
    number = _hole(child)
    if number is None:
        special = _special(child, holes)
        return special if special is not None else _filled(child, holes, bracketed)
    value = _fill(child, number, holes)
    if isinstance(parent, cst.Arg | cst.AssignTarget | cst.Assign | cst.Return | cst.Expr):
        value = bare(value)
    return fit(value, parent, field, bracketed), {number}


def _special(child: Any, holes: Sequence[Any]) -> tuple[Any, set[int]] | None:
    """A hole whose node is more than an expression takes the place of what holds the name: ``*args``, slices."""
    if isinstance(child, cst.Subscript) and len(child.slice) == 1:
        number = _hole(getattr(child.slice[0].slice, "value", None))
        if number is not None and number < len(holes) and isinstance(holes[number], tuple | list):
            return child.with_changes(slice=holes[number]), {number}
    number = _hole(getattr(child, "value", None))
    if number is None or number >= len(holes):
        return None
    value = holes[number]
    if isinstance(child, cst.Arg) and isinstance(value, cst.Arg | cst.StarredElement) and child.keyword is None:
        return child.with_changes(star="*", value=value.value), {number}
    if isinstance(child, cst.Element) and isinstance(value, cst.Arg | cst.StarredElement):
        return cst.StarredElement(value.value, comma=child.comma), {number}
    if isinstance(child, cst.Index) and isinstance(value, cst.Slice):
        return value, {number}
    return None

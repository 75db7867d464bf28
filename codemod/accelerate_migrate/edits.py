"""What a rule may ask to be changed, in terms of the `ast` nodes that the analysis talks about.

Rules never see libcst: they name a node and give its new text. Text may have holes, ``{0}``, ``{1}``, …, each filled
by the *edited* text of the node given for it, so edits of different rules nest: ``accelerator.backward({0})`` around a
loss whose expression another rule changes as well. (A literal brace is doubled, as in ``str.format``.) Two edits of
one node, or an edit of a node that another edit's template dropped, are a fault of ours and raise ``EditConflict``.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TypeAlias


class EditConflict(Exception):
    """Two rules want different things of one place: an internal error, contained to the file."""


@dataclass(frozen=True, slots=True, eq=False)
class Replace:
    """Put an expression in the place of another: ``template`` with the edited ``holes`` in it."""

    node: ast.expr
    template: str
    holes: tuple[ast.expr, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ReplaceStatement:
    """Put one or more statements (unindented, newline-separated) in the place of one. Its comments stay above it."""

    node: ast.stmt
    template: str
    holes: tuple[ast.expr, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Delete:
    """Remove a statement; a block left empty gets ``pass``. Comments directly above it go only if nothing else follows
    in their paragraph."""

    node: ast.stmt


@dataclass(frozen=True, slots=True, eq=False)
class Insert:
    """Put statements before or after one, in its block. Several at one place keep the order they were given in."""

    anchor: ast.stmt
    template: str
    holes: tuple[ast.expr, ...] = ()
    after: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Unwrap:
    """Put the statements of one branch of an ``if``, or of a ``with``, (edited) in the place of the whole, dedented.

    ``branch`` is ``"body"`` or ``"orelse"``. The edits inside the kept branch apply; those in the other do not exist.
    """

    node: ast.If | ast.With
    branch: str = "body"


@dataclass(frozen=True, slots=True, eq=False)
class Wrap:
    """Indent consecutive statements of one block (edited) under a header, like ``if accelerator.is_main_process:``."""

    statements: tuple[ast.stmt, ...]
    header: str


@dataclass(frozen=True, slots=True, eq=False)
class AddParameter:
    """Give a function one more positional parameter in front of parameter number ``index`` (``self`` counts)."""

    function: ast.FunctionDef | ast.AsyncFunctionDef
    index: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class RenameParameter:
    """Give a parameter another name at its definition (its uses are edits of their own). Its annotation goes."""

    function: ast.FunctionDef | ast.AsyncFunctionDef
    old: str
    new: str


@dataclass(frozen=True, slots=True, eq=False)
class RemoveParameter:
    """Take a parameter from a function, with its annotation and default (the arguments of calls are edits of their
    own)."""

    function: ast.FunctionDef | ast.AsyncFunctionDef
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class AddArgument:
    """Give a call one more argument: positional in front of argument number ``index``, or ``name=value`` at the end."""

    call: ast.Call
    value: str
    index: int | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RemoveArgument:
    """Drop one argument of a call: an element of its ``args`` or one of its ``keywords``."""

    call: ast.Call
    argument: ast.expr | ast.keyword


@dataclass(frozen=True, slots=True, eq=False)
class RenameKeyword:
    """Give a keyword argument another name; its value is edited on its own."""

    call: ast.Call
    keyword: ast.keyword
    new: str


@dataclass(frozen=True, slots=True, eq=False)
class AddImport:
    """Make ``from module import name`` hold at the top of a file; names of one module share one line.

    Without a name it is ``import module``. ``tree`` says which file, where there are several.
    """

    module: str
    name: str = ""
    tree: ast.Module | None = None


Edit: TypeAlias = (
    Replace
    | ReplaceStatement
    | Delete
    | Insert
    | Unwrap
    | Wrap
    | AddParameter
    | RenameParameter
    | RemoveParameter
    | AddArgument
    | RemoveArgument
    | RenameKeyword
    | AddImport
)


def place_of(edit: Edit) -> ast.AST | None:
    """A node of the file that an edit changes; ``None`` where it does not say."""
    match edit:
        case Replace() | ReplaceStatement() | Delete() | Unwrap():
            return edit.node
        case Insert():
            return edit.anchor
        case Wrap():
            return edit.statements[0]
        case AddParameter() | RenameParameter() | RemoveParameter():
            return edit.function
        case AddArgument() | RemoveArgument() | RenameKeyword():
            return edit.call
        case AddImport():
            return edit.tree

"""The last look at a new file before anybody sees it: it parses, compiles, and uses no name that it lost."""

from __future__ import annotations

import builtins
import re
import symtable
import warnings
from collections.abc import Iterator

import libcst as cst

_MODULE_NAMES = frozenset(
    {
        "__annotations__",
        "__builtins__",
        "__cached__",
        "__class__",
        "__debug__",
        "__dict__",
        "__doc__",
        "__file__",
        "__loader__",
        "__module__",
        "__name__",
        "__package__",
        "__path__",
        "__qualname__",
        "__spec__",
        "WindowsError",
    }
)
_STAR_IMPORT = re.compile(rb"^[ \t]*from[ \t]+[\w.]+[ \t]+import[ \t(]*\*", re.MULTILINE)
_ALWAYS_BOUND = frozenset(dir(builtins)) | _MODULE_NAMES


class GuardError(Exception):
    """The new text is not fit to be written; the message says what is wrong with it."""


def check(before: bytes, after: bytes) -> None:
    """Raise ``GuardError`` if the new bytes of a file are broken in a way that the old ones were not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(after, "<migrated>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            where = f" (line {line})" if line else ""
            raise GuardError(f"the result does not compile: {getattr(error, 'msg', error)}{where}") from error
        except RecursionError as error:
            raise GuardError("the result is nested too deeply to compile") from error
        try:
            read_back = cst.parse_module(after).bytes
        except (cst.ParserSyntaxError, UnicodeDecodeError) as error:
            raise GuardError("libcst cannot read the result") from error
        if read_back != after:
            raise GuardError("libcst does not give the bytes of the result back")
        lost = unbound_names(after) - unbound_names(before)
    if lost:
        names = ", ".join(f"{name} ({scope})" if scope else name for scope, name in sorted(lost))
        raise GuardError(f"the result uses names that nothing binds any more: {names}")


def unbound_names(data: bytes) -> set[tuple[str, str]]:
    """The names that a file uses and binds nowhere visible, each with its scope (``""`` for the file itself)."""
    try:
        top = symtable.symtable(data, "<script>", "exec")  # type: ignore[arg-type]  # bytes are read as by compile()
    except (SyntaxError, ValueError):
        return set()
    tables = list(_tables(top, ""))
    bound = set(_ALWAYS_BOUND)
    bound.update(s.get_name() for s in top.get_symbols() if _binds(s))
    for _, table in tables:
        bound.update(s.get_name() for s in table.get_symbols() if s.is_declared_global() and _binds(s))
    if _has_star_import(data):
        return set()
    return {
        (scope, symbol.get_name())
        for scope, table in tables
        for symbol in table.get_symbols()
        if symbol.is_referenced() and _looks_outside(symbol, table) and symbol.get_name() not in bound
    }


def _tables(table: symtable.SymbolTable, scope: str) -> Iterator[tuple[str, symtable.SymbolTable]]:
    yield scope, table
    for child in table.get_children():
        yield from _tables(child, f"{scope}.{child.get_name()}" if scope else child.get_name())


def _binds(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace() or symbol.is_parameter()


def _looks_outside(symbol: symtable.Symbol, table: symtable.SymbolTable) -> bool:
    """Whether the name is looked up in the file's own scope (and the builtins)."""
    if table.get_type() == "module":
        return not _binds(symbol)
    return symbol.is_global()


def _has_star_import(data: bytes) -> bool:
    return _STAR_IMPORT.search(data) is not None

"""The codes that a report may hold, those of rules and the tool's own: listed, explained and checked."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Protocol

from accelerate_migrate.codes import OWN_CODES


class Described(Protocol):
    """What rules and the tool's own codes have in common."""

    @property
    def code(self) -> str:
        """``AM130``."""
        ...

    @property
    def name(self) -> str:
        """``backward``."""
        ...

    @property
    def summary(self) -> str:
        """One line."""
        ...

    def explain(self) -> str:
        """Markdown."""
        ...


class UnknownCode(Exception):
    """No rule has this code; the message says which are near."""


def entries() -> list[Described]:
    """Everything that has a code, by code."""
    from accelerate_migrate.rules.registry import all_rules

    found: list[Described] = [*OWN_CODES, *all_rules()]
    return sorted(found, key=lambda entry: entry.code)


def listing() -> str:
    """A line for each code."""
    rows = entries()
    width = max(len(row.name) for row in rows)
    return "".join(f"{row.code}  {row.name:{width}}  {row.summary}\n" for row in rows)


def explain(code: str) -> str:
    """What there is to say about one code (or name)."""
    rows = entries()
    for row in rows:
        if code.upper() == row.code or code.lower() == row.name:
            return row.explain().rstrip() + "\n"
    raise UnknownCode(_unknown(code, rows))


def check_codes(groups: Iterable[str]) -> tuple[str, ...]:
    """Codes and prefixes from an option: split at commas, in capitals, each one meaning at least one code."""
    codes = [code.strip().upper() for group in groups for code in group.split(",") if code.strip()]
    if codes:
        rows = entries()
        for code in codes:
            if not any(row.code.startswith(code) for row in rows):
                raise UnknownCode(_unknown(code, rows))
    return tuple(codes)


def _unknown(code: str, rows: Sequence[Described]) -> str:
    words = {row.code: row for row in rows} | {row.name: row for row in rows}
    near = difflib.get_close_matches(code.upper(), words, 3, 0.7) + difflib.get_close_matches(
        code.lower(), words, 3, 0.6
    )
    shown = list(dict.fromkeys(f"{words[word].code} ({words[word].name})" for word in near))[:3]
    hint = f"near are {', '.join(shown)}" if shown else "--list-rules lists all"
    return f"no rule has the code {code!r}; {hint}."

"""Reports on a run: one module a format.

A module of this package that holds ``NAME`` and ``render`` is a format: dropping it in is the whole act. Modules import
what is costly (rich, templates) inside ``render``, so that the list of names is cheap. ``render`` gives bytes, since a
diff may have to carry bytes that are no text.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

from accelerate_migrate.findings import FileResult, Severity, Status, Target


@dataclass(frozen=True, slots=True)
class Report:
    """What there is to say about a run. ``bases`` has, for a path, the folder that diffs of it count from."""

    tool: str
    target: Target
    results: tuple[FileResult, ...]
    wrote: bool = False
    bases: Mapping[str, str] = field(default_factory=dict)

    def count(self, status: Status) -> int:
        """How many files ended in a status."""
        return sum(result.status is status for result in self.results)

    def count_findings(self, severity: Severity) -> int:
        """How many findings have a severity."""
        return sum(finding.severity is severity for result in self.results for finding in result.findings)


@dataclass(frozen=True, slots=True)
class View:
    """Who looks at a report, and how closely."""

    colour: bool = False
    width: int = 120
    quiet: bool = False
    verbose: bool = False


class Format(Protocol):
    """A module of this package that renders reports."""

    NAME: str

    def render(self, report: Report, view: View) -> bytes:
        """The report in this format."""
        ...


def formats() -> dict[str, Format]:
    """All formats by name."""
    found: dict[str, Format] = {}
    for module in pkgutil.iter_modules(__path__):
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        if hasattr(loaded, "NAME"):
            found[loaded.NAME] = cast(Format, loaded)
    return found

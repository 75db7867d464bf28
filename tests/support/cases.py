"""The folders of ``fixtures/``: a script before, the script after, its launch config and its findings.

    fixtures/NAME/before.py        the original
    fixtures/NAME/after.py         what the tool makes of it, byte for byte
    fixtures/NAME/launch.yaml      the launch config it leaves beside it (the script is called train.py)
    fixtures/NAME/findings.txt     its findings, a line each: LINE CODE SEVERITY
    fixtures/NAME/after.accelerate.py   only where ``--target accelerate`` gives more than another import
    fixtures/NAME/case.toml        how it is trained; may be missing

``pytest --update-fixtures`` writes all but the first and the last from what the tool does now; review the diff.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelerate_migrate.findings import FileResult, Options, Target
from accelerate_migrate.migrate import migrate_program
from accelerate_migrate.source import Script

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = Path(__file__).parents[2] / "fixtures"


@dataclass(frozen=True)
class Training:
    """How a case is trained: ``runs`` are argument lists, run one after another in one folder.

    ``losses``: how far (relatively) the losses may be from those of one process; None: only that ranks stay in step.
    ``lines``: a regular expression; the printed lines that it finds must carry the numbers that one process prints.
    """

    runs: tuple[tuple[str, ...], ...] = ((),)
    losses: float | None = None
    lines: str | None = None


@dataclass(frozen=True)
class Case:
    """One folder of ``fixtures/``."""

    folder: Path
    one: Training = field(default_factory=Training)
    two: Training = field(default_factory=Training)

    @property
    def name(self) -> str:
        return self.folder.name

    def file(self, name: str) -> Path:
        return self.folder / name

    def migrate(self, target: Target = Target.RUNTIME) -> FileResult:
        """The tool's result for ``before.py``, as a file called ``train.py``."""
        script = Script("train.py", self.file("before.py").read_bytes())
        return migrate_program([script], Options(target=target))[0]


def _runs(table: dict[str, Any], default: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(run) for run in table["runs"]) if "runs" in table else default


def _case(folder: Path) -> Case:
    file = folder / "case.toml"
    table = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    one = Training(_runs(table, ((),)))
    two = table.get("two_processes", {})
    return Case(folder, one, Training(_runs(two, one.runs), two.get("losses"), two.get("lines")))


CASES = [_case(script.parent) for script in sorted(FIXTURES.glob("*/before.py"))]


def findings_text(result: FileResult) -> str:
    """The findings of a file, a line each, in the form of ``findings.txt``."""
    ordered = sorted(result.findings, key=lambda finding: (finding.line, finding.code, finding.column))
    return "".join(f"{finding.line} {finding.code} {finding.severity.value}\n" for finding in ordered)

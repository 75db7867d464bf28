"""The folders of ``fixtures/``: a script before, the script after, its launch config and its findings.

    fixtures/NAME/before.py        the original
    fixtures/NAME/after.py         what the tool makes of it, byte for byte
    fixtures/NAME/launch.yaml      the launch config it leaves beside it (the script is called train.py)
    fixtures/NAME/findings.txt     its findings, a line each: LINE CODE SEVERITY
    fixtures/NAME/after.accelerate.py   only where ``--target accelerate`` gives more than another import
    fixtures/NAME/case.toml        how it is trained, and ``checkpoints = "state"`` for that option; may be missing

A program of several files has folders ``before/`` and ``after/`` in the place of the scripts; ``train.py`` is started.

``pytest --update-fixtures`` writes all but the first and the last from what the tool does now; review the diff.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelerate_migrate.findings import Checkpoints, FileResult, Options, Target
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
    checkpoints: Checkpoints = Checkpoints.KEEP
    one: Training = field(default_factory=Training)
    two: Training = field(default_factory=Training)

    @property
    def name(self) -> str:
        return self.folder.name

    def file(self, name: str) -> Path:
        return self.folder / name

    @property
    def before(self) -> dict[str, bytes]:
        """The original's files by name; the script of a single file is called ``train.py``."""
        single = self.file("before.py")
        if single.exists():
            return {"train.py": single.read_bytes()}
        return {file.name: file.read_bytes() for file in sorted(self.file("before").glob("*.py"))}

    def expected(self, name: str) -> Path:
        """Where the migrated form of a file is kept."""
        return self.file("after.py") if self.file("before.py").exists() else self.file("after") / name

    def migrate(self, target: Target = Target.RUNTIME) -> dict[str, FileResult]:
        """The tool's result for each file, ``train.py`` first."""
        return migrated(self.before, target, self.checkpoints)


def migrated(
    files: dict[str, bytes], target: Target = Target.RUNTIME, checkpoints: Checkpoints = Checkpoints.KEEP
) -> dict[str, FileResult]:
    """The tool's result for each file of a program, ``train.py`` first."""
    names = sorted(files, key=lambda name: (name != "train.py", name))
    options = Options(target=target, checkpoints=checkpoints)
    results = migrate_program([Script(name, files[name]) for name in names], options)
    return dict(zip(names, results, strict=True))


def texts(results: dict[str, FileResult]) -> dict[str, bytes]:
    """The files of a program after its migration, those that did not change included."""
    return {name: result.before if result.after is None else result.after for name, result in results.items()}


def _runs(table: dict[str, Any], default: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(run) for run in table["runs"]) if "runs" in table else default


def _case(folder: Path) -> Case:
    file = folder / "case.toml"
    table = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    one = Training(_runs(table, ((),)))
    two = table.get("two_processes", {})
    return Case(
        folder,
        Checkpoints(table.get("checkpoints", "keep")),
        one,
        Training(_runs(two, one.runs), two.get("losses"), two.get("lines")),
    )


CASES = [_case(before.parent) for before in sorted([*FIXTURES.glob("*/before.py"), *FIXTURES.glob("*/before")])]


def findings_text(results: dict[str, FileResult]) -> str:
    """The findings of a program, a line each, as in ``findings.txt``; with the file where there are several."""
    lines = []
    for name, result in results.items():
        ordered = sorted(result.findings, key=lambda finding: (finding.line, finding.code, finding.column))
        where = f"{name}:" if len(results) > 1 else ""
        lines += [f"{where}{finding.line} {finding.code} {finding.severity.value}\n" for finding in ordered]
    return "".join(lines)

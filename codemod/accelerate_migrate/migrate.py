"""The pipeline for one program: facts -> rules -> edits -> guard -> results."""

from __future__ import annotations

from collections.abc import Sequence

from accelerate_migrate.findings import FileResult, Options
from accelerate_migrate.source import Script


def migrate_program(scripts: Sequence[Script], options: Options) -> list[FileResult]:
    """Migrate the files that a run sees together; one result a script, in order. Never raises for a fault in a file."""
    raise NotImplementedError

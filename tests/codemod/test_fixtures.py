"""What the tool makes of each fixture script, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelerate_migrate.findings import Options, Status, Target
from accelerate_migrate.migrate import migrate_program
from accelerate_migrate.source import Script
from support.cases import CASES, Case, findings_text

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def check(expected: Path, actual: bytes, update: bool) -> None:
    if update:
        expected.write_bytes(actual)
    assert expected.exists(), f"no {expected.name} yet: run pytest --update-fixtures and review what it writes"
    assert actual.decode("utf-8") == expected.read_bytes().decode("utf-8")


@every_case
def test_migrated_script(case: Case, update_fixtures: bool) -> None:
    result = case.migrate()
    assert result.status is Status.MIGRATED
    assert result.after is not None
    check(case.file("after.py"), result.after, update_fixtures)


@every_case
def test_launch_config(case: Case, update_fixtures: bool) -> None:
    config = case.migrate().launch_config
    assert config is not None
    check(case.file("launch.yaml"), config.encode(), update_fixtures)


@every_case
def test_findings(case: Case, update_fixtures: bool) -> None:
    check(case.file("findings.txt"), findings_text(case.migrate()).encode(), update_fixtures)


@every_case
def test_second_run_changes_nothing(case: Case) -> None:
    first = case.migrate()
    assert first.after is not None
    second = migrate_program([Script("train.py", first.after)], Options())[0]
    assert second.after is None
    assert second.status is Status.UNCHANGED


@every_case
def test_target_accelerate(case: Case) -> None:
    """The same text but for the import, unless ``after.accelerate.py`` says otherwise."""
    result = case.migrate(Target.ACCELERATE)
    assert result.after is not None
    own = case.file("after.accelerate.py")
    expected = own if own.exists() else case.file("after.py")
    text = expected.read_text(encoding="utf-8")
    if expected != own:
        text = text.replace("from accelerate_runtime", "from accelerate")
    assert result.after.decode("utf-8") == text

"""What the tool makes of each fixture script, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelerate_migrate.findings import Status, Target
from support.cases import CASES, Case, findings_text, migrated, texts

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def check(expected: Path, actual: bytes, update: bool) -> None:
    if update:
        expected.parent.mkdir(exist_ok=True)
        expected.write_bytes(actual)
    assert expected.exists(), f"no {expected.name} yet: run pytest --update-fixtures and review what it writes"
    assert actual.decode("utf-8") == expected.read_bytes().decode("utf-8")


@every_case
def test_migrated_script(case: Case, update_fixtures: bool) -> None:
    results = case.migrate()
    assert results["train.py"].status is Status.MIGRATED
    for name, text in texts(results).items():
        check(case.expected(name), text, update_fixtures)


@every_case
def test_launch_config(case: Case, update_fixtures: bool) -> None:
    configs = {name: result.launch_config for name, result in case.migrate().items() if result.launch_config}
    assert list(configs) == ["train.py"]
    check(case.file("launch.yaml"), configs["train.py"].encode(), update_fixtures)


@every_case
def test_findings(case: Case, update_fixtures: bool) -> None:
    check(case.file("findings.txt"), findings_text(case.migrate()).encode(), update_fixtures)


@every_case
def test_second_run_changes_nothing(case: Case) -> None:
    for result in migrated(texts(case.migrate())).values():
        assert result.after is None
        assert result.status is Status.UNCHANGED


@every_case
def test_target_accelerate(case: Case) -> None:
    """The same text but for the import, unless ``after.accelerate.py`` says otherwise."""
    for name, after in texts(case.migrate(Target.ACCELERATE)).items():
        own = case.file("after.accelerate.py")
        expected = own if own.exists() else case.expected(name)
        text = expected.read_text(encoding="utf-8")
        if expected != own:
            text = text.replace("from accelerate_runtime", "from accelerate")
        assert after.decode("utf-8") == text

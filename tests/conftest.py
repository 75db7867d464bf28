"""Options and fixtures of the whole suite."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # else DeepSpeed, which Accelerate imports, says what it chose


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-fixtures",
        action="store_true",
        help="write fixtures/*/after.py, launch.yaml and findings.txt from what the tool does now",
    )


@pytest.fixture
def update_fixtures(request: pytest.FixtureRequest) -> bool:
    """Whether expected files are being rewritten."""
    return bool(request.config.getoption("--update-fixtures"))

"""Which files belong together, told from their bytes."""

from __future__ import annotations

import os

import pytest

from accelerate_migrate.analysis import components as told

HERE = os.path.abspath("project")


def components(sources: dict[str, str], *seeds: str) -> list[list[str]]:
    """The groups of these files, by their names."""
    absolute = {os.path.join(HERE, name): text.encode() for name, text in sources.items()}
    groups = told.components(absolute, [os.path.join(HERE, seed) for seed in seeds])
    return [[os.path.relpath(path, HERE).replace(os.sep, "/") for path in group] for group in groups]


@pytest.mark.parametrize(
    "line",
    [
        "import engine",
        "import os, engine as e",
        "from engine import (\n    train,\n    evaluate,\n)",
        "from engine import *",
        "from . import engine",
        "from .engine import train",
        "    import engine  # inside a function",
    ],
)
def test_one_file_imports_the_other(line: str) -> None:
    sources = {"train.py": line, "engine.py": "", "other.py": "import os"}
    assert components(sources, "train.py") == [["engine.py", "train.py"]]


def test_importers_of_a_seed_belong_to_it() -> None:
    sources = {"engine.py": "", "train.py": "import engine", "tune.py": "import engine", "data.py": ""}
    assert components(sources, "engine.py") == [["engine.py", "train.py", "tune.py"]]


def test_files_that_share_nothing_stand_apart() -> None:
    sources = {"one.py": "import torch", "two.py": "import torch"}
    assert components(sources, "one.py", "two.py") == [["one.py"], ["two.py"]]


def test_group_without_a_seed_is_none() -> None:
    assert components({"one.py": "import two", "two.py": "", "three.py": ""}, "three.py") == [["three.py"]]


def test_module_of_a_package() -> None:
    sources = {"lib/__init__.py": "from .steps import step", "lib/steps.py": "", "train.py": "from lib import step"}
    assert components(sources, "train.py") == [["lib/__init__.py", "lib/steps.py", "train.py"]]


def test_seeds_of_a_very_large_group_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "MAX_FILES", 2)
    sources = {"one.py": "import shared", "two.py": "import shared", "shared.py": ""}
    assert components(sources, "one.py", "two.py") == [["one.py"], ["two.py"]]

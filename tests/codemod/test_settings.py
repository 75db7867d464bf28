"""``[tool.accelerate-migrate]`` of the nearest pyproject.toml."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from accelerate_migrate.settings import Settings, SettingsProblem, load_settings


def write(text: str, folder: str = ".") -> None:
    os.makedirs(folder, exist_ok=True)
    Path(folder, "pyproject.toml").write_text(text)


def test_all_settings(folder: Path) -> None:
    write(
        '[tool.accelerate-migrate]\ntarget = "accelerate"\ncheckpoints = "state"\n'
        'select = ["AM1"]\nignore = ["AM13"]\nexclude = ["old/"]\n'
        "respect-git = false\njobs = 2\n"
    )
    assert load_settings(["."]) == Settings("accelerate", "state", ("AM1",), ("AM13",), ("old/",), False, 2)


def test_nothing_is_settled_without_a_table(folder: Path) -> None:
    write("[project]\nname = 'x'\n")
    assert load_settings(["."]) == Settings()


def test_the_nearest_one_above_all_paths_holds(folder: Path) -> None:
    write("[tool.accelerate-migrate]\njobs = 1\n")
    write("[tool.accelerate-migrate]\njobs = 2\n", "a")
    write("[project]\n", "a/b")
    Path("a/b/train.py").touch()
    assert load_settings(["a/b/train.py"]).jobs == 2
    assert load_settings(["a/b", "a"]).jobs == 2
    assert load_settings(["a/b", "c"]).jobs == 1
    assert load_settings([]).jobs == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("slect = ['AM1']", r"slect is no setting; did you mean 'select'\?"),
        ("frobnicate = 1", "frobnicate is no setting; known are target, checkpoints, select"),
        ("respect_git = true", r"respect_git is no setting; did you mean 'respect-git'\?"),
        ("select = 'AM1'", "select must be a list of strings, not 'AM1'"),
        ("exclude = [1]", "exclude must be a list"),
        ("target = 'torch'", 'target must be "runtime" or "accelerate"'),
        ("checkpoints = 'none'", 'checkpoints must be "keep" or "state"'),
        ("respect-git = 1", "respect-git must be true or false"),
        ("jobs = 0", "jobs must be a number from 1"),
        ("jobs = true", "jobs must be a number from 1"),
    ],
)
def test_a_wrong_setting_is_named(folder: Path, line: str, message: str) -> None:
    write(f"[tool.accelerate-migrate]\n{line}\n")
    with pytest.raises(SettingsProblem, match=message):
        load_settings(["."])


def test_a_broken_file_matters_only_where_it_speaks_of_us(folder: Path) -> None:
    write("[tool.other\n")
    assert load_settings(["."]) == Settings()
    write("[tool.accelerate-migrate\n")
    with pytest.raises(SettingsProblem, match="not valid TOML"):
        load_settings(["."])

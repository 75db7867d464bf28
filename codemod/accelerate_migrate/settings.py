"""Settings from ``[tool.accelerate-migrate]`` of the nearest pyproject.toml."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = "accelerate-migrate"
_CHOICES = {"target": ("runtime", "accelerate"), "checkpoints": ("keep", "state")}


class SettingsProblem(Exception):
    """The settings cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a project may settle for all its runs; an option on the command line takes the place of its setting."""

    target: str | None = None
    checkpoints: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    respect_git: bool = True
    jobs: int | None = None


def load_settings(paths: Sequence[str]) -> Settings:
    """The settings that hold for some paths: of the nearest pyproject.toml with our table above what they share."""
    folder = os.path.commonpath([os.path.realpath(path) for path in paths]) if paths else os.getcwd()
    while True:
        found = _read(os.path.join(folder, "pyproject.toml"))
        if found is not None:
            return found
        parent = os.path.dirname(folder)
        if parent == folder:
            return Settings()
        folder = parent


def _read(path: str) -> Settings | None:
    """The settings of one pyproject.toml, ``None`` where it has none."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return None
    if TABLE.encode() not in data:
        return None  # nobody's settings: whether it is valid TOML is not our affair
    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsProblem(f"{path} is not valid TOML: {error}.") from None
    tool = document.get("tool")
    table = tool.get(TABLE) if isinstance(tool, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise SettingsProblem(f"{path}: [tool.{TABLE}] must be a table.")
    return Settings(**{key.replace("-", "_"): _value(path, key, value) for key, value in table.items()})


def _value(path: str, key: str, value: Any) -> Any:
    """The checked value of one setting."""
    where = f"{path}: [tool.{TABLE}] {key}"
    known = [field.name.replace("_", "-") for field in fields(Settings)]
    if key not in known:
        near = difflib.get_close_matches(key, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."
        raise SettingsProblem(f"{where} is no setting; {hint}")
    if key in ("select", "ignore", "exclude"):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise SettingsProblem(f"{where} must be a list of strings, not {value!r}.")
        return tuple(value)
    if key == "respect-git":
        if not isinstance(value, bool):
            raise SettingsProblem(f"{where} must be true or false, not {value!r}.")
    elif key == "jobs":
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SettingsProblem(f"{where} must be a number from 1, not {value!r}.")
    elif value not in (choices := _CHOICES[key]):
        raise SettingsProblem(f'{where} must be "{choices[0]}" or "{choices[1]}", not {value!r}.')
    return value

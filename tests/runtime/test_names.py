"""The public names: each is found, and type checkers are told of the same ones."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

MODULES = ["accelerate_runtime", "accelerate_runtime.utils", "accelerate_runtime.tracking"]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_found(module: str) -> None:
    public = importlib.import_module(module)
    for name in public.__all__:
        assert getattr(public, name) is not None


@pytest.mark.parametrize("module", MODULES)
def test_type_checkers_see_the_same_names(module: str) -> None:
    public = importlib.import_module(module)
    assert public.__file__ is not None
    tree = ast.parse(Path(public.__file__).read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    told = {alias.name for line in checked.body if isinstance(line, ast.ImportFrom) for alias in line.names}
    assert told == set(public.__all__) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Acelerator'"):
        _ = importlib.import_module("accelerate_runtime").Acelerator

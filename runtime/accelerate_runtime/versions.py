"""Comparing versions of installed packages."""

from __future__ import annotations

import operator
from importlib import metadata
from typing import Any

import torch
from torch.torch_version import TorchVersion

_OPERATORS = {
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    "<": operator.lt,
}


def compare_versions(library_or_version: Any, operation: str, requirement_version: str) -> bool:
    """Whether a package's version stands in a relation to another version.

    Args:
        library_or_version: the name of an installed distribution, or a version (of torch or of `packaging`).
        operation: one of `>`, `>=`, `==`, `!=`, `<=` and `<`.
        requirement_version: such as "2.9" or "2.13.0".

    Raises:
        ValueError: another `operation`.
        PackageNotFoundError: the distribution is not installed.
    """
    if operation not in _OPERATORS:
        raise ValueError(f"operation={operation!r}: allowed are {', '.join(_OPERATORS)}")
    is_name = isinstance(library_or_version, str) and not isinstance(library_or_version, TorchVersion)
    version = metadata.version(library_or_version) if is_name else str(library_or_version)
    equal = TorchVersion(version) == requirement_version
    if operation in ("==", "!="):
        return equal is (operation == "==")
    return bool(_OPERATORS[operation](TorchVersion(version), requirement_version))


def is_torch_version(operation: str, version: str) -> bool:
    """Whether the installed torch's version stands in a relation to `version`; see `compare_versions`."""
    return compare_versions(torch.__version__, operation, version)

"""What all configuration objects share."""

from __future__ import annotations

import os
from dataclasses import MISSING, fields
from typing import Any

_TRUE, _FALSE = {"1", "true", "yes", "y", "on", "t"}, {"0", "false", "no", "n", "off", "f", ""}


def flag_from_env(name: str, default: bool = False) -> bool:
    """A yes/no environment variable.

    Raises:
        ValueError: it is set to something that is neither.
    """
    text = os.environ.get(name)
    if text is None:
        return default
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"environment variable {name}={text!r} is neither true nor false")


class KwargsHandler:
    """Base of the dataclasses that carry keyword arguments to an object of torch."""

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def to_kwargs(self) -> dict[str, Any]:
        """The fields that differ from their default."""
        changed = {}
        for f in fields(self):  # type: ignore[arg-type]
            default = f.default_factory() if f.default_factory is not MISSING else f.default
            if getattr(self, f.name) != default:
                changed[f.name] = getattr(self, f.name)
        return changed

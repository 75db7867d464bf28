"""What all configuration objects share."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any


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

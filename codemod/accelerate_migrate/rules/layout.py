"""How new statements are laid out."""

from __future__ import annotations

MAX_WIDTH = 110


def rebinding(names: tuple[str, ...], function: str, indent: int, *, as_tuple: bool = False) -> str:
    """``a, b = function(a, b)`` (or ``function((a, b))``), folded where it would be too wide behind its indentation."""
    joined = ", ".join(names)
    given = f"({joined})" if as_tuple and len(names) > 1 else joined
    flat = f"{joined} = {function}({given})"
    return flat if len(flat) + indent <= MAX_WIDTH else f"{joined} = {function}(\n    {given}\n)"


def assigned_call(name: str, function: str, arguments: dict[str, str], indent: int) -> str:
    """``name = function(key=value, ...)``, an argument a line where it would be too wide behind its indentation."""
    given = [f"{key}={value}" for key, value in arguments.items()]
    flat = f"{name} = {function}({', '.join(given)})"
    if len(flat) + indent <= MAX_WIDTH:
        return flat
    return "\n".join([f"{name} = {function}(", *(f"    {one}," for one in given), ")"])

"""Whether all processes were asked for the same."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..collectives import all_gather_object
from .base import StrategySetup


def check_alike(strategy: str, setup: StrategySetup, model: nn.Module) -> None:
    """Compare what the processes train, and how, before they exchange anything: else they would wait for each other, or
    train something that nobody asked for.

    Args:
        strategy: its name.

    Raises:
        ValueError: something differs; the message says what, on each process.
    """
    plugin = setup.plugin
    asked: dict[str, Any] = {"the strategy": strategy, "mixed_precision": setup.mixed_precision}
    if plugin is not None:
        settings: dict[str, Any] = plugin.compared() if hasattr(plugin, "compared") else vars(plugin)
        asked |= {f"{type(plugin).__name__}.{name}": _told(value) for name, value in settings.items()}
    if setup.parallelism is not None:
        sizes = {name: value for name, value in vars(setup.parallelism).items() if "mesh" not in name}
        asked |= {f"ParallelismConfig.{name}": _told(value) for name, value in sizes.items()}
    asked |= {"the model's class": type(model).__name__}
    asked |= {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    everyone: list[dict[str, Any]] = all_gather_object(asked)
    for name in {name: None for one in everyone for name in one}:
        values = [one.get(name, "not there") for one in everyone]
        if any(value != values[0] for value in values):
            told = ", ".join(f"{value} on process {rank}" for rank, value in enumerate(values))
            raise ValueError(f"prepare() was asked for different things: {name} is {told}")


def _told(value: Any) -> str:
    """A setting as text; of a function or a module, which has an address, the class."""
    return type(value).__name__ if callable(value) or " at 0x" in repr(value) else repr(value)

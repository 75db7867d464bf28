"""Whether all processes were asked for the same."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import nn

from .. import waiting
from .base import StrategySetup


def check_settings(strategy: str, mixed_precision: str, *settings: Any) -> None:
    """Compare how the processes are to train, before they form groups for it: else they would wait for each other.

    Every process must call this.

    Args:
        strategy: its name.
        settings: configuration objects, each compared attribute by attribute; None is one that was not given.

    Raises:
        ValueError: something differs; the message says what, on each process.
    """
    asked = {"the strategy": strategy, "mixed_precision": mixed_precision}
    for one in settings:
        if one is not None:
            asked |= _attributes(one)
    _compare("Accelerator()", asked)


def check_alike(strategy: str, setup: StrategySetup, model: nn.Module) -> None:
    """Compare what the processes train, and how, before they exchange anything: else they would wait for each other, or
    train something that nobody asked for.

    Every process must call this.

    Args:
        strategy: its name.

    Raises:
        ValueError: something differs; the message says what, on each process.
    """
    asked: dict[str, Any] = {"the strategy": strategy, "mixed_precision": setup.mixed_precision}
    for one in (setup.plugin, setup.parallelism):
        if one is not None:
            asked |= _attributes(one)
    asked |= {"the model's class": type(model).__name__}
    asked |= {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    _compare("prepare()", asked)


def _attributes(settings: Any) -> dict[str, str]:
    """What of a configuration object must be the same on all processes, by the names that a message gives them."""
    found: dict[str, Any] = settings.compared() if hasattr(settings, "compared") else vars(settings)
    kind = type(settings).__name__
    return {f"{kind}.{name}": _told(value) for name, value in found.items() if "mesh" not in name}


def _compare(call: str, asked: dict[str, Any]) -> None:
    everyone: list[dict[str, Any]] = [asked] * dist.get_world_size()
    try:
        dist.all_gather_object(everyone, asked)
    except RuntimeError as error:
        waiting.explain(call, error)  # not counted as a call: messages count those of the script
        raise
    for name in {name: None for one in everyone for name in one}:
        values = [one.get(name, "not there") for one in everyone]
        if any(value != values[0] for value in values):
            told = ", ".join(f"{value} on process {rank}" for rank, value in enumerate(values))
            raise ValueError(f"{call} was asked for different things: {name} is {told}")


def _told(value: Any) -> str:
    """A setting as text; of a function or a module, which has an address, the class."""
    return type(value).__name__ if callable(value) or " at 0x" in repr(value) else repr(value)

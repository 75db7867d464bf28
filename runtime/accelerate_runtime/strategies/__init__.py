"""How training is spread over processes: one file per strategy, found by name.

Others may be registered by `register_strategy`, or by an entry point of the group `accelerate_runtime.strategies`; they
are chosen by `Accelerator(strategy="name")` or ACCELERATE_STRATEGY=name.
"""

from __future__ import annotations

import importlib
import os
from importlib import metadata
from typing import TYPE_CHECKING, Any

import torch

from ..devices import XLA
from ..environment import parse_flag_from_env
from .base import Strategy, StrategySetup

if TYPE_CHECKING:
    from ..plugins.parallelism import ParallelismConfig

__all__ = ["Strategy", "StrategySetup", "choose", "find", "register_strategy"]

_OURS = {
    "single": ".single:SingleProcess",
    "ddp": ".ddp:DataParallel",
    "fsdp": ".fsdp:FullyShardedDataParallel",
    "tensor": ".tensor:TensorParallel",
    "deepspeed": ".deepspeed.strategy:DeepSpeed",
    "xla": ".xla:XLA",
    "pipeline": ".pipeline.strategy:PipelineParallel",
}
_GROUP = "accelerate_runtime.strategies"
_registered: dict[str, type[Strategy]] = {}

_FLAGS = {"fsdp": "ACCELERATE_USE_FSDP", "deepspeed": "ACCELERATE_USE_DEEPSPEED"}
"""The environment variables by which a launcher asks for an engine."""


def register_strategy(name: str, strategy: type[Strategy]) -> None:
    """Offer a strategy of one's own as `Accelerator(strategy=name)`.

    Raises:
        TypeError: it is no subclass of Strategy.
        ValueError: the name is one of ours.
    """
    if not (isinstance(strategy, type) and issubclass(strategy, Strategy)):
        raise TypeError(f"register_strategy({name!r}, {strategy!r}): pass a subclass of accelerate_runtime.Strategy")
    if name in _OURS:
        raise ValueError(f"register_strategy({name!r}): the name is taken by accelerate_runtime's own")
    _registered[name] = strategy


def find(name: str) -> type[Strategy]:
    """The strategy of that name.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name in _OURS:
        module, _, attribute = _OURS[name].partition(":")
        found: type[Strategy] = getattr(importlib.import_module(module, __name__), attribute)
        return found
    if name in _registered:
        return _registered[name]
    theirs = {point.name: point for point in metadata.entry_points(group=_GROUP)}
    if name in theirs:
        loaded = theirs[name].load()
        if not (isinstance(loaded, type) and issubclass(loaded, Strategy)):
            raise TypeError(f"strategy {name!r}: its entry point names {loaded!r}, which is no subclass of Strategy")
        return loaded
    raise ValueError(f"strategy={name!r}: allowed are {', '.join(sorted({*_OURS, *_registered, *theirs}))}")


def asked_for_by(name: str | None, device: torch.device) -> str | None:
    """The strategy that `name` (the constructor's `strategy`), ACCELERATE_STRATEGY or the device asks for.

    Raises:
        ValueError: two of them ask for different ones.
    """
    asked = name or os.environ.get("ACCELERATE_STRATEGY") or None
    needed = "xla" if device.type == XLA.name else None
    if needed is not None and asked in _OURS and asked != needed:
        raise ValueError(f"strategy={asked!r}: on {device} it is {needed!r} that trains; leave it out, or use the CPU")
    return asked or needed


def choose(
    asked: str | None, plugins: dict[str, Any], parallelism: ParallelismConfig | None, num_processes: int
) -> tuple[str, Any]:
    """The name of the strategy to use, and the plugin that configures it.

    Args:
        asked: the strategy's name; see `asked_for_by`.
        plugins: the constructor's plugin of each engine, None where there is none.

    Raises:
        ValueError: two things ask for different engines.
    """
    given = {name: plugin for name, plugin in plugins.items() if plugin is not None}
    wanted = set(given) or {name for name, flag in _FLAGS.items() if parse_flag_from_env(flag)}
    if asked is not None:
        wanted.add(asked)
    if parallelism is not None and parallelism.pp_enabled:
        wanted.add("pipeline")
    if parallelism is not None and parallelism.tp_enabled and wanted <= {"fsdp", "tensor"}:
        return "tensor", given.get("fsdp")
    if parallelism is not None and parallelism.tp_enabled:
        wanted.add("tensor")
    if not wanted and parallelism is not None and (parallelism.dp_shard_enabled or parallelism.cp_enabled):
        wanted.add("fsdp")
    if len(wanted) > 1:
        raise ValueError(
            f"{' and '.join(sorted(wanted))} are asked for at once: a script is spread in one way; pass one"
        )
    if not wanted:
        return "ddp" if num_processes > 1 else "single", None
    (name,) = wanted
    if num_processes == 1 and name == "fsdp":
        return "single", given.get(name)
    return name, given.get(name)

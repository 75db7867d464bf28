"""Which layers of a model tensor parallelism splits, and how: a plan given, the model's own, or one derived."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.distributed.tensor.parallel import ParallelStyle

from ..plugins.parallelism import TorchTensorParallelConfig
from .tensor_styles import Column, Row, named

_LOOKED_FOR = (
    "attention of separate q, k, v and output layers, MLPs of an up (gate) and a down layer, and nn.Sequential of "
    "Linear, activation and Linear"
)


@dataclass
class Plan:
    """How a model is split.

    Attributes:
        styles: for names of layers and blocks, how.
        heads: the layers that give logits, split along the classes (loss parallelism).
    """

    styles: dict[str, ParallelStyle] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)

    def blocks(self, model: nn.Module) -> list[str]:
        """The smallest parts of `model` in which a Column is followed by a Row: what must give what it gives whole."""
        columns = [name for name, style in self.styles.items() if isinstance(style, Column) and not style.gather]
        found: dict[str, None] = {}
        for name, style in self.styles.items():
            if isinstance(style, Row) and style.split and isinstance(model.get_submodule(name), nn.Linear):
                parent = name.rpartition(".")[0]
                while not any(inside(column, parent) for column in columns) and parent:
                    parent = parent.rpartition(".")[0]
                found[parent] = None
        return list(found)


def inside(name: str, parent: str) -> bool:
    """Whether the part `name` of a model is in its part `parent`; the model itself is called ""."""
    return not parent or name.startswith(f"{parent}.")


def plan_for(model: nn.Module, config: TorchTensorParallelConfig, size: int) -> Plan:
    """The plan of the configuration, else the model's own (`tp_plan`), else one that is derived.

    Args:
        size: over how many processes.

    Raises:
        ValueError: a plan does not fit the model, or nothing is found to split.
    """
    if config.plan is not None:
        return _read(model, config.plan, size, "TorchTensorParallelConfig(plan=...)", strict=True)
    own = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None)
    if isinstance(own, Mapping) and own and not (config.sequence_parallel or config.loss_parallel):
        return _read(model, own, size, "the model's own tp_plan", strict=False)
    from .tensor_derivation import derive

    plan = derive(model, size, config)
    if not plan.styles:
        raise ValueError(
            f"tensor parallelism: nothing was found in {type(model).__name__} that can be split over {size} processes "
            f"({_LOOKED_FOR}, whose heads and widths are multiples of {size}). Pass a plan: "
            "ParallelismConfig(tp_handler=TorchTensorParallelConfig(plan={'layers.*.up': 'colwise', …}))."
        )
    return plan


def _read(model: nn.Module, given: Mapping[str, Any], size: int, source: str, strict: bool) -> Plan:
    plan = Plan()
    names = [name for name, _ in model.named_modules()]
    for pattern, style in given.items():
        matching = [name for name in names if _matches(name, pattern)]
        if not matching and strict:
            raise ValueError(f"{source}: no part of {type(model).__name__} is called {pattern!r}")
        for name in matching:
            plan.styles[name] = named(style) if isinstance(style, str) else style
    if not strict:
        _split_what_is_tied(model, plan, size)
    for name, each in plan.styles.items():
        if not isinstance(each, ParallelStyle):
            raise ValueError(f"{source}: {name!r} is {each!r}; pass a name such as 'colwise', or a ParallelStyle")
        layer = model.get_submodule(name)
        if isinstance(each, (Column, Row)) and isinstance(layer, nn.Linear):
            width = layer.out_features if isinstance(each, Column) else layer.in_features
            if width % size:
                raise ValueError(f"{source}: {name!r} has width {width}, no multiple of tp_size={size}")
    return plan


def _split_what_is_tied(model: nn.Module, plan: Plan, size: int) -> None:
    """Split token embeddings as the head that shares their weight, where a model's own plan has one only; else none."""
    heads = {id(part.weight): name for name, part in model.named_modules() if type(part) is nn.Linear}
    for name, table in model.named_modules():
        head = heads.get(id(table.weight)) if isinstance(table, nn.Embedding) else None
        if head is not None and (head in plan.styles) != (name in plan.styles):
            plan.styles.pop(head, None)
            plan.styles.pop(name, None)
            if type(table) is nn.Embedding and not table.num_embeddings % size:
                plan.styles |= {head: Column(gather=True), name: Row()}


def _matches(name: str, pattern: str) -> bool:
    ours, theirs = name.split("."), pattern.split(".")
    return len(ours) == len(theirs) and all(map(fnmatch.fnmatchcase, ours, theirs))

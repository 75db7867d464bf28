"""A model cut into its stages: each process keeps its own, and what stands for the others."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..sharding import Replaced
from . import layout as layouts
from .elsewhere import Elsewhere, take_away
from .layout import Layout
from .shares import Share

Covers = dict[int, list[tuple[nn.Module, str, torch.Tensor]]]


def bring(model: nn.Module, kept: set[int], device: torch.device) -> None:
    """Have all processes start from the main process's numbers; bring those that are kept to the device.

    Args:
        kept: the ids of the parameters and buffers that stay here.

    Raises:
        ValueError: the model is on the meta device.
    """
    seen: set[int] = set()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        if tensor.is_meta:
            raise ValueError(f"prepare() was given a model on the meta device ({name}): a pipeline needs its numbers")
        numbers = tensor.detach().to(device).contiguous()  # gloo sends strided tensors wrongly
        dist.broadcast(numbers, 0)
        if id(tensor) in kept:
            if numbers.data_ptr() == tensor.data_ptr():
                continue
            if tensor.device == device:
                tensor.detach().copy_(numbers)
            else:
                tensor.data = numbers


def split(
    model: nn.Module, layout: Layout, mine: list[int], share: Share, device: torch.device
) -> tuple[Elsewhere, Covers]:
    """Take away what other stages have, in place; fills in `share`.

    Args:
        mine: the stages that are here.

    Returns:
        What computes with stand-ins, and for each stage here the stand-ins of the other stages that are here too.
    """
    names = {id(p): name for name, p in reversed(list(model.named_parameters(remove_duplicate=False)))}
    places = list(layouts.parameters(model, layout))
    buffers = list(layouts.buffers(model, layout))
    kept = {id(parameter) for _, _, parameter, stage in places if stage in mine}
    kept |= {id(buffer) for _, _, buffer, stage, shared in buffers if shared or stage in mine}
    bring(model, kept, device)
    elsewhere = Elsewhere()
    stand_ins: dict[int, torch.Tensor] = {}
    covers: Covers = {stage: [] for stage in mine} if len(mine) > 1 else {}

    def stand_in(tensor: torch.Tensor, name: str) -> torch.Tensor:
        if id(tensor) not in stand_ins:
            stand_ins[id(tensor)] = elsewhere.stand_in(tensor, name)
        return stand_ins[id(tensor)]

    for module, own, parameter, stage in places:
        if stage not in mine:
            take_away(module, "_parameters", own, stand_in(parameter, names[id(parameter)]))
            continue
        for other in covers.keys() - {stage}:
            covers[other].append((module, own, stand_in(parameter, names[id(parameter)])))
    for module, own, buffer, stage, shared in buffers:
        if shared:
            continue
        if stage not in mine:
            take_away(module, "_buffers", own, stand_in(buffer, own))
            continue
        for other in covers.keys() - {stage}:
            covers[other].append((module, own, stand_in(buffer, own)))
    for _, _, parameter, _ in places:
        if id(parameter) not in kept and not isinstance(parameter, Replaced):
            parameter.grad = None
            parameter.data = torch.empty(0, dtype=parameter.dtype)
            parameter.__class__ = Replaced
    share.parameters = list(model.parameters())
    share.own_names = {id(parameter): names[id(parameter)] for parameter in share.parameters}
    return elsewhere, covers


def tell(model: nn.Module, layout: Layout, ranks: int) -> tuple[dict[str, int], dict[str, str]]:
    """Who tells what of a whole state dict; asked before the model is split.

    Returns:
        For each name the process of the pipeline that has it; for each name of a tied tensor the first of its names.
    """
    of: dict[str, int] = {}
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        for own, _ in module.named_parameters(recurse=False, remove_duplicate=False):
            of[prefix + own] = layout.of_parameter(name, own) % ranks
        for own, _ in module.named_buffers(recurse=False, remove_duplicate=False):
            of[prefix + own] = layout.stage_of[name] % ranks
    first: dict[Any, str] = {}
    same: dict[str, str] = {}
    tensors = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    for name in model.state_dict():
        of.setdefault(name, 0)
        same[name] = first.setdefault(id(tensors[name]), name) if name in tensors else name
    return {name: of[name] for name in same}, same


def tied_stages(model: nn.Module, layout: Layout) -> dict[str, list[int]]:
    """The parameters that several stages use, by their first name, with these stages."""
    stages: dict[int, set[int]] = {}
    for _, _, parameter, stage in layouts.parameters(model, layout):
        stages.setdefault(id(parameter), set()).add(stage)
    return {
        name: sorted(stages[id(parameter)])
        for name, parameter in model.named_parameters()
        if len(stages[id(parameter)]) > 1
    }

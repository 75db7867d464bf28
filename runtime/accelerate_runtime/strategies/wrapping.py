"""Which parts of a model are gathered (and computed again) one at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from ..compilation import repeats
from ..plugins.fsdp import FullyShardedDataParallelPlugin


def parts_to_wrap(model: nn.Module, plugin: FullyShardedDataParallelPlugin) -> list[nn.Module]:
    """The parts, inner ones first; without the model itself.

    Raises:
        ValueError: a class that the plugin names is not in the model.
    """
    chosen = set(map(id, _chosen(model, plugin)))
    holders = _holders(model)
    return [
        part
        for part in reversed(list(model.modules()))  # inner ones first
        if id(part) in chosen and part is not model and not _shares(part, holders)
    ]


def _chosen(model: nn.Module, plugin: FullyShardedDataParallelPlugin) -> Iterable[nn.Module]:
    policy = plugin.auto_wrap_policy
    if policy == "NO_WRAP":
        return []
    if callable(policy):
        return [part for part in model.modules() if policy(module=part, recurse=False, nonwrapped_numel=_size(part))]
    if policy == "SIZE_BASED_WRAP":
        return _by_size(model, plugin.min_num_params)
    return _blocks(model, plugin.transformer_cls_names_to_wrap)


def _holders(model: nn.Module) -> dict[int, set[int]]:
    """For each parameter the modules that have it: several, where it is tied."""
    holders: dict[int, set[int]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            holders.setdefault(id(parameter), set()).add(id(module))
    return holders


def _shares(part: nn.Module, holders: dict[int, set[int]]) -> bool:
    """Whether a parameter is tied to one outside of `part`: both must be gathered together."""
    inside = {id(module) for module in part.modules()}
    return any(not holders[id(parameter)] <= inside for parameter in part.parameters())


def ignored_parameters(model: nn.Module, ignored: Any) -> set[nn.Parameter]:
    """The parameters of the parts that stay whole: modules, or a pattern that their names match."""
    if ignored is None:
        return set()
    if isinstance(ignored, str):
        ignored = [part for name, part in model.named_modules() if re.fullmatch(ignored, name)]
    inside = {id(part) for part in model.modules()}
    return {parameter for part in ignored if id(part) in inside for parameter in part.parameters()}


def parameters_that_cannot_be_sharded(model: nn.Module) -> set[nn.Parameter]:
    """Those without dimensions, or without elements."""
    return {parameter for parameter in model.parameters() if parameter.ndim == 0 or not parameter.numel()}


def _blocks(model: nn.Module, names: list[str] | None) -> Iterator[nn.Module]:
    """The parts of the classes `names`; without any, of those that the model names itself, else those that repeat."""
    wanted = names or list(getattr(model, "_no_split_modules", None) or [])
    if not wanted:
        for part in model.modules():
            if repeats(part):
                yield from part.children()
        return
    there = {type(part).__name__ for part in model.modules()}
    missing = [name for name in wanted if name not in there]
    if missing:
        raise ValueError(
            f"transformer_cls_names_to_wrap: the model has no part of class {', '.join(missing)}; it has "
            f"{', '.join(sorted(there))}"
        )
    yield from (part for part in model.modules() if type(part).__name__ in wanted)


def _by_size(model: nn.Module, least: int) -> list[nn.Module]:
    """Parts of at least `least` parameters, not counting those of parts inside that are wrapped already."""
    found: list[nn.Module] = []

    def visit(part: nn.Module) -> int:
        own = sum(parameter.numel() for parameter in part.parameters(recurse=False))
        size = own + sum(visit(child) for child in part.children())
        if size >= least and part is not model and not isinstance(part, (nn.ModuleList, nn.ModuleDict)):
            found.append(part)
            return 0
        return size

    visit(model)
    return found


def _size(part: nn.Module) -> int:
    return sum(parameter.numel() for parameter in part.parameters())

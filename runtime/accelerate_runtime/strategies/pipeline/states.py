"""Whole state dicts, of a model and of its optimizers, from the parts that the stages have; and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ... import pieces, waiting
from ...precision.scaling import parameters_of
from ..sharding import Replaced
from .shares import Share


def guard(model: nn.Module, share: Share) -> None:
    """Have `model.state_dict()`, which would have a part only, say so; and `model.load_state_dict` take a whole one."""

    def refuse(*_: Any) -> None:
        if not share.reading:
            raise RuntimeError(
                "model.state_dict() of a prepared model has only the stages of this process: call "
                "accelerator.get_state_dict(model) on every process; the main process gets the whole one."
            )

    def pick(_: nn.Module, state: dict[str, Any], prefix: str, *__: Any) -> None:
        with reading(share):
            own = model.state_dict(prefix=prefix)
        for name in share.told_by:
            if prefix + name not in own:
                state.pop(prefix + name, None)

    pieces.keep_out_of_files(model)
    for parameter in model.parameters():
        pieces.keep_out_of_files(parameter)
    model.register_state_dict_pre_hook(refuse)  # type: ignore[no-untyped-call]
    model.register_load_state_dict_pre_hook(pick)  # type: ignore[no-untyped-call]


@contextmanager
def reading(share: Share) -> Iterator[None]:
    """A context in which `model.state_dict()` gives this process's part."""
    before, share.reading = share.reading, True
    try:
        yield
    finally:
        share.reading = before


def whole_state(model: nn.Module, share: Share) -> dict[str, Any]:
    """The whole state dict, on the CPU of the main process; elsewhere an empty one. All processes call it."""
    if not share.has_main:
        return {}
    with reading(share):
        state = model.state_dict()
    mine = {
        name: value.cpu() if isinstance(value, torch.Tensor) else value
        for name, value in state.items()
        if share.told_by.get(name) == share.rank and share.same[name] == name
    }
    parts = _gathered(mine, share)
    if parts is None:
        return {}
    found = {name: value for part in parts for name, value in part.items()}
    return {name: found[share.same[name]] for name in share.told_by}


def _gathered(mine: Any, share: Share) -> list[Any] | None:
    """What each process of the pipeline has, on the main process."""
    parts: list[Any] | None = [None] * share.ranks if share.rank == 0 else None
    dist.gather_object(mine, parts, group=share.pipeline, group_dst=0)
    return parts


class WholeState:
    """Has an optimizer give and take the state of all stages.

    All processes call `state_dict`; the main process gets the whole one, with the numbers that an optimizer of the
    whole model gives its parameters, the others only the groups. `load_state_dict` takes a whole one, which every
    process has.

    Args:
        optimizer: its parameters may be those of the whole model still; those of other stages are taken out.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, shares: list[Share]) -> None:
        self._share = shares[0]
        names = {id_: name for share in shares for id_, name in share.own_names.items()}
        named = [
            [names.get(id(p), f"#{g}.{i}") for i, p in enumerate(group["params"])]
            for g, group in enumerate(optimizer.param_groups)
        ]
        had_all = any(isinstance(parameter, Replaced) for parameter in parameters_of(optimizer))
        own = [
            [
                name
                for name, parameter in zip(listed, group["params"], strict=True)
                if not isinstance(parameter, Replaced)
            ]
            for listed, group in zip(named, optimizer.param_groups, strict=True)
        ]
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if isinstance(parameter, Replaced):
                    optimizer.state.pop(parameter, None)
            group["params"] = [parameter for parameter in group["params"] if not isinstance(parameter, Replaced)]
        place = {name: index for index, name in enumerate(names.values())}
        told = [[place[name] for name in listed if name in place] for listed in own]
        ordered = had_all or all(sorted(places) == places for places in told)
        groups = self._of_all(named, own, had_all, ordered)
        numbers = iter(range(sum(map(len, groups))))
        self._numbers = [{name: next(numbers) for name in group} for group in groups]
        self._own = [[group[name] for name in listed] for group, listed in zip(self._numbers, own, strict=True)]
        optimizer.register_state_dict_post_hook(self._gather)
        optimizer.register_load_state_dict_pre_hook(self._pick)

    def _of_all(self, named: list[list[str]], own: list[list[str]], had_all: bool, ordered: bool) -> list[list[str]]:
        """The names in each group of an optimizer of the whole model, in their order."""
        share = self._share
        told: list[Any] = [None] * share.ranks
        dist.all_gather_object(told, (named, had_all, own, ordered), share.pipeline)
        whole = any(had_all for _, had_all, *_ in told)  # a stage that has all of its parameters can't see it alone
        everyone = [(names if whole else None, owned, in_order) for names, _, owned, in_order in told]
        if len({len(owned) for _, owned, _ in everyone}) > 1:
            raise ValueError(
                "prepare() was given an optimizer that has another number of parameter groups on each stage of the "
                "pipeline: make it before prepare(), of the parameters of the whole model."
            )
        if all(named is None for named, *_ in everyone) and not all(ordered for *_, ordered in everyone):
            raise ValueError(
                "prepare() was given an optimizer that was made of a model cut into stages already, with parameters in "
                "another order than the model's: their order in the whole model is not known. Make the optimizer "
                "before prepare(), or in the order of model.parameters()."
            )
        listed = next((names for names, *_ in everyone if names is not None), None)
        place = {name: index for index, name in enumerate(share.order)}
        groups = []
        for index in range(len(own)):
            present = {name for _, owned, _ in everyone for name in owned[index]}
            if listed is None:
                groups.append(sorted(present, key=lambda name: (place.get(name, len(place)), name)))
                continue
            # a parameter of another stage is known by its place only, which is the same on all processes
            known = {}
            for names, *_ in everyone:
                for number, name in enumerate((names or listed)[index]):
                    if not name.startswith("#"):
                        known[number] = name
            groups.append([known.get(number, name) for number, name in enumerate(listed[index])])
        return groups

    def _gather(self, _: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        if pieces.wanted_in_shards():
            raise RuntimeError(
                "torch.distributed.checkpoint does not know the stages of a pipeline: use accelerator.save_state(), or "
                "accelerator.get_state_dict(model) and optimizer.state_dict() on every process."
            )
        return waiting.for_whole("optimizer.state_dict()", self._whole_of, state)

    def _whole_of(self, state: dict[str, Any]) -> dict[str, Any]:
        local = [number for group in state["param_groups"] for number in group["params"]]
        renumbered = dict(zip(local, [number for group in self._own for number in group], strict=True))
        groups = [
            {**group, "params": list(numbers.values())}
            for group, numbers in zip(state["param_groups"], self._numbers, strict=True)
        ]
        if not self._share.has_main:
            return {**state, "state": {}, "param_groups": groups}
        mine = {renumbered[number]: _on_cpu(entry) for number, entry in state["state"].items()}
        parts = _gathered(mine, self._share) or []
        entries = {number: entry for part in reversed(parts) for number, entry in part.items()}
        return {**state, "state": dict(sorted(entries.items())), "param_groups": groups}

    def _pick(self, _: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        return self.part_of(state)

    def part_of(self, state: dict[str, Any]) -> dict[str, Any]:
        """This process's part of a whole state dict; what is no whole one as it is.

        Numbered as this optimizer numbers its parameters.
        """
        sizes = [len(group["params"]) for group in state["param_groups"]]
        if sizes != [len(group) for group in self._numbers] or sizes == [len(group) for group in self._own]:
            return state
        order = [number for group in state["param_groups"] for number in group["params"]]
        entries: dict[int, Any] = {}
        groups: list[dict[str, Any]] = []
        for group, own in zip(state["param_groups"], self._own, strict=True):
            numbers: list[int] = []
            for number in own:
                local = sum(len(one["params"]) for one in groups) + len(numbers)
                if order[number] in state["state"]:
                    entries[local] = state["state"][order[number]]
                numbers.append(local)
            groups.append({**group, "params": numbers})
        return {**state, "state": entries, "param_groups": groups}


def _on_cpu(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    return {name: value.cpu() if isinstance(value, torch.Tensor) else value for name, value in entry.items()}

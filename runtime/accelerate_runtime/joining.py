"""join_uneven_inputs: processes that run out of batches keep up with those that have more, by torch's `Join`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.distributed_c10d import _get_default_group
from torch.nn.parallel import DistributedDataParallel

from . import collectives
from .accumulation import GradientState
from .data import Pass
from .data.channel import put_together, take_apart
from .optimizer import AcceleratedOptimizer
from .precision.scaling import parameters_of
from .preparation import Prepared
from .waiting import explain, together


@contextmanager
def join_uneven_inputs(
    joinables: list[Any], even_batches: bool | None, prepared: Prepared, state: GradientState, device: torch.device
) -> Iterator[None]:
    """See `Accelerator.join_uneven_inputs`; for several processes."""
    members = [_joinable(thing) for thing in joinables]
    if sum(isinstance(member, DistributedDataParallel) for member in members) > 1:
        raise ValueError(
            "join_uneven_inputs: pass one model. What several exchange comes in an order that a process which has run "
            "out cannot follow; give every process as many batches instead (even_batches=True)."
        )
    if any(getattr(member, "_comm_hooks", None) for member in members):
        raise ValueError(
            "join_uneven_inputs: a model with DistributedDataParallelKwargs(comm_hook=...) divides gradients by the "
            "number of all processes, also where some have run out: leave comm_hook out, or give every process as many "
            "batches (even_batches=True)."
        )
    configs = [member._join_config for member in members]
    rest = _Rest(lambda last: _catch_up(last, members, prepared, state), device)
    with _even_batches(even_batches, prepared), _windows_in_step(state):
        try:
            with Join([*members, rest], divide_by_initial_world_size=False):
                yield
        except RuntimeError as error:
            explain("join_uneven_inputs", error)
            raise
        finally:
            for member, config in zip(members, configs, strict=True):
                member._join_config = config  # torch leaves it on: each later forward would wait for all processes
                if isinstance(member, DistributedDataParallel):
                    _divide_by_all(member)


def _joinable(thing: Any) -> Joinable:
    inner = thing.optimizer if isinstance(thing, AcceleratedOptimizer) else thing
    if isinstance(inner, Joinable):
        return inner
    raise TypeError(
        f"join_uneven_inputs: {type(inner).__name__} exchanges nothing between processes that could be joined. Pass "
        "prepared models that are trained (and optimizers that are Joinable), and leave others out."
    )


class _Hook(JoinHook):
    def __init__(self, after: Callable[[bool], None]) -> None:
        self.after = after

    def post_hook(self, is_last_joiner: bool) -> None:
        self.after(is_last_joiner)


class _Rest(Joinable):
    """What a model's own hook does not bring in step; acts when all processes have run out."""

    def __init__(self, after: Callable[[bool], None], device: torch.device) -> None:
        super().__init__()
        self.after, self.device = after, device

    def join_hook(self, **_: Any) -> JoinHook:
        return _Hook(self.after)

    @property
    def join_device(self) -> torch.device:
        return self.device

    @property
    def join_process_group(self) -> dist.ProcessGroup:
        return _get_default_group()


def _divide_by_all(model: DistributedDataParallel) -> None:
    """Have later gradients divided by the number of processes again, not by how many were left last."""
    work = dist.all_reduce(torch.ones(1, device=model.device), async_op=True)
    model.reducer._set_forward_pass_work_handle(work, True)


@contextmanager
def _even_batches(even: bool | None, prepared: Prepared) -> Iterator[None]:
    dealings = [loader.dealing for loader in prepared.loaders if loader.dealing is not None]
    before = [dealing.even for dealing in dealings]
    try:
        for dealing in dealings if even is not None else ():
            dealing.even = even
        yield
    finally:
        for dealing, was in zip(dealings, before, strict=True):
            dealing.even = was


@contextmanager
def _windows_in_step(state: GradientState) -> Iterator[None]:
    before, state.window_ends = state.window_ends, _ends_somewhere
    try:
        yield
    finally:
        state.window_ends = before


def _ends_somewhere(this: Pass) -> bool:
    """Whether the batch given last is the last one of some process: accumulation windows end there on all.

    Raises:
        ValueError: that cannot be told.
    """
    dealing = this.loader.dealing
    if dealing is None or dealing.even:
        return this.at_end
    try:
        return this.number + 1 in dealing.lengths()
    except TypeError:
        raise ValueError(
            "accumulate() inside join_uneven_inputs: the processes get different numbers of batches of an iterable "
            "dataset, and cannot know where those of another end. Pass join_uneven_inputs(..., even_batches=True), or "
            "GradientAccumulationPlugin(sync_with_dataloader=False)."
        ) from None


def _catch_up(last: bool, members: list[Joinable], prepared: Prepared, state: GradientState) -> None:
    """Give every process the optimizers, schedulers and loss scale of the one that took most steps.

    Join hands on parameters and buffers alone: with momenta of their own, the processes would drift apart afterwards.
    """
    flags: list[bool] = collectives.all_gather_object(last)
    source = max(rank for rank, flag in enumerate(flags) if flag)
    parameters = {id(p) for member in members if isinstance(member, torch.nn.Module) for p in member.parameters()}
    optimizers = [
        optimizer.optimizer
        for optimizer in prepared.optimizers
        if any(id(parameter) in parameters for parameter in parameters_of(optimizer))
    ]
    for optimizer in optimizers:
        theirs = _from(source, optimizer.state_dict() if dist.get_rank() == source else None)
        if dist.get_rank() != source:
            optimizer.load_state_dict(theirs)
    scalers = [optimizer.scaler for optimizer in prepared.optimizers[:1] if optimizer.scaler is not None]
    holders: list[Any] = [*prepared.schedulers, *scalers]
    values = [*(holder.state_dict() for holder in holders), state.step]
    collectives.broadcast_object_list(values, source)
    state.step = values.pop()
    for holder, value in zip(holders, values, strict=True):
        holder.load_state_dict(value)


def _from(source: int, value: Any) -> Any:
    """`value` of process `source`, on every process; its tensors go as tensors."""
    device = collectives.wire_device()
    pickled, tensors = take_apart(value)
    form: list[Any] = [pickled, [(tensor.dtype, tensor.shape, tensor.device) for tensor in tensors]]
    collectives.broadcast_object_list(form, source)
    if dist.get_rank() == source:
        for tensor in tensors:
            together("join_uneven_inputs", dist.broadcast, tensor.to(device).contiguous(), source)
        return value
    received = []
    for dtype, shape, home in form[1]:
        tensor = torch.empty(shape, dtype=dtype, device=device)
        together("join_uneven_inputs", dist.broadcast, tensor, source)
        received.append(tensor if home.type != "cpu" else tensor.cpu())
    return put_together(form[0], received)

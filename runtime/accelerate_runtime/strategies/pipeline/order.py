"""In which order a process runs forwards and backwards of its stages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple


class Action(NamedTuple):
    """A forward or backward of one micro-batch in one stage."""

    backward: bool
    stage: int
    micro_batch: int


def forwards(stages: list[int], micro_batches: int) -> list[Action]:
    """All forwards, of the stages that a process holds."""
    return [Action(False, stage, index) for stage in stages for index in range(micro_batches)]


def backwards(stages: list[int], micro_batches: int) -> list[Action]:
    """All backwards."""
    return [Action(True, stage, index) for stage in reversed(stages) for index in range(micro_batches)]


def one_forward_one_backward(rank: int, ranks: int, micro_batches: int) -> list[Action]:
    """1F1B: as few micro-batches under way as keep all processes busy; each holds one stage."""
    ahead = min(ranks - 1 - rank, micro_batches)
    order = [Action(False, rank, index) for index in range(ahead)]
    for index in range(micro_batches):
        if index + ahead < micro_batches:
            order.append(Action(False, rank, index + ahead))
        order.append(Action(True, rank, index))
    return order


def interleaved(rank: int, ranks: int, micro_batches: int, stages_each: int) -> list[Action]:
    """Interleaved 1F1B, in torch's order: process 0 holds the stages 0, `ranks`, 2 * `ranks`, …"""
    from torch.distributed.pipelining import ScheduleInterleaved1F1B  # not light

    count = ranks * stages_each
    stages = [
        SimpleNamespace(
            stage_index=index,
            group_rank=rank,
            group_size=ranks,
            num_stages=count,
            is_first=index == 0,
            is_last=index == count - 1,
            has_backward=True,
            device=None,
        )
        for index in range(rank, count, ranks)
    ]
    schedule = ScheduleInterleaved1F1B(stages, micro_batches, loss_fn=lambda *_: None)  # type: ignore[arg-type]
    kinds = {"FORWARD": False, "FULL_BACKWARD": True}
    order = []
    for action in schedule.pipeline_order[rank]:
        if action is not None and action.computation_type.name in kinds:
            assert action.microbatch_index is not None
            backward = kinds[action.computation_type.name]
            order.append(Action(backward, action.stage_index, action.microbatch_index))
    assert len(order) == 2 * stages_each * micro_batches, "torch's order has other actions than it had in 2.13"
    return order


def fitting(micro_batches: int, ranks: int) -> int:
    """The most micro-batches, not more than those asked for, that the interleaved order can be made for."""
    return next(n for n in range(micro_batches, 0, -1) if n % max(1, n // ranks) == 0)

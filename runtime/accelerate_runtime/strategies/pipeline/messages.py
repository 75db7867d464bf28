"""Tensors from one stage to the next, and gradients back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from ... import waiting
from .shares import Share

_TENSORS = 64  # at most, from a stage to the next: more would share tags
FORWARD, BACKWARD = 0, 1


class Messages:
    """Sends without waiting; keeps what is under way until `settle`.

    Stage number modulo the number of processes is the process that has it.
    """

    def __init__(self, share: Share) -> None:
        self._share = share
        self.ranks = dist.get_process_group_ranks(share.pipeline)
        self._under_way: list[tuple[Any, torch.Tensor]] = []

    def send(self, tensors: Sequence[torch.Tensor], stage: int, micro_batch: int, way: int) -> None:
        """Send tensors to a stage."""
        for index, tensor in enumerate(tensors):
            wire = tensor.detach().contiguous()
            try:
                work = dist.isend(wire, self._of(stage), self._share.pipeline, _tag(stage, micro_batch, way, index))
            except RuntimeError as error:
                waiting.explain("the pipeline", error)
                raise
            self._under_way.append((work, wire))

    def receive(
        self,
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[torch.dtype],
        stage: int,
        sender: int,
        micro_batch: int,
        way: int,
    ) -> list[torch.Tensor]:
        """The tensors that stage `sender` sent to `stage`, which is here."""
        found = []
        for index, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
            tensor = torch.empty(shape, dtype=dtype, device=self._share.device)
            try:
                dist.recv(tensor, self._of(sender), self._share.pipeline, _tag(stage, micro_batch, way, index))
            except RuntimeError as error:
                waiting.explain("the pipeline", error)
                raise
            found.append(tensor)
        return found

    def settle(self) -> None:
        """Wait until what was sent has arrived."""
        try:
            for work, _ in self._under_way:
                work.wait()
        except RuntimeError as error:
            waiting.explain("the pipeline", error)
            raise
        finally:
            self._under_way.clear()

    def _of(self, stage: int) -> int:
        return self.ranks[stage % len(self.ranks)]


def _tag(stage: int, micro_batch: int, way: int, index: int) -> int:
    return ((micro_batch * 256 + stage) * 2 + way) * _TENSORS + index

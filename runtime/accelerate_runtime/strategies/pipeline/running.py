"""A prepared model's forward: micro-batches through the stages, and their backwards where the loss's begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils import _pytree as pytree

from ... import waiting
from . import batches, order
from .batches import MicroBatches
from .boundary import Applied, Boundary, anchor
from .gradients import Gradients
from .messages import BACKWARD, FORWARD, Messages
from .order import Action
from .shares import Share
from .stage import Entry, Stages


@dataclass(frozen=True)
class Schedule:
    """How a pipeline runs.

    Attributes:
        kind: "gpipe", "1f1b" or "interleaved".
        micro_batches: into how many a batch is cut.
        stages: how many there are; process r of the pipeline has the stages r, r + processes, …
        sums: the loss is a sum over samples, not a mean.
        loss_fn: makes the loss of the model's output and a target, where the model does not make it.
    """

    kind: str
    micro_batches: int
    stages: int
    sums: bool = False
    loss_fn: Callable[[Any, Any], torch.Tensor] | None = None


class PipelinedForward:
    """Stands in for `model.forward`. All processes of the pipeline call it with the same inputs, and get the output."""

    def __init__(
        self,
        model: nn.Module,
        stages: Stages,
        schedule: Schedule,
        share: Share,
        gradients: Gradients,
        before: Callable[[], None],
    ) -> None:
        self.model, self._stages, self._schedule = model, stages, schedule
        self._share, self._device, self._gradients, self._before = share, share.device, gradients, before
        self._messages = Messages(share)
        self._rank, self._ranks = share.rank, share.ranks
        self._mine = list(range(self._rank, schedule.stages, self._ranks))
        self._entries: dict[Any, list[Entry]] = {}
        self.forwards = 0
        """How many there were: each draws other random numbers."""
        self.tells_all = True
        """Whether all processes get the output, and not the last alone."""
        self.__wrapped__ = model.forward  # what inspect.signature() shows

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        schedule = self._schedule
        target = kwargs.pop("target", None) if schedule.loss_fn is not None else None
        micro_batches = batches.cut((args, target), kwargs, self._number, schedule.sums)
        entries = [self.entries_for(one, others) for (one, _), others in micro_batches.inputs]
        self.forwards += 1
        run = _Run(
            micro_batches, self._stages, self._messages, schedule, entries, (torch.initial_seed(), self.forwards)
        )
        self._before()
        if torch.is_grad_enabled() and self.model.training and schedule.kind != "gpipe":
            return self._with_loss(run)
        with self._one_autocast():
            for action in order.forwards(self._mine, micro_batches.number):
                run.do(action)
        self._messages.settle()
        output = self._told(run)
        learned = _floats(output)
        if not torch.is_grad_enabled() or not learned:
            return output

        def backward(gradients: list[Any]) -> None:
            self._run_backwards(run, gradients)

        Boundary.apply(anchor(), backward, *learned)  # type: ignore[no-untyped-call]
        return output

    def _number(self, samples: int) -> int:
        """Into how many micro-batches that many samples are cut."""
        number = min(self._schedule.micro_batches, samples)
        return order.fitting(number, self._ranks) if self._schedule.kind == "interleaved" else number

    def _run_backwards(self, run: _Run, gradients: list[Any]) -> None:
        """The stages' backwards, from the gradients of the leaves of the whole batch's output."""
        parts = [
            [None] * run.micro_batches.number if one is None else batches.spread(one, run.micro_batches)
            for one in gradients
        ]
        with self._gradients.added():
            for action in order.backwards(self._mine, run.micro_batches.number):
                run.do(action, [part[action.micro_batch] for part in parts])
            self._messages.settle()

    def _with_loss(self, run: _Run) -> Any:
        """1F1B: forwards and backwards; returns the loss, whose backward applies the gradients."""
        run.makes_loss = True
        number = run.micro_batches.number
        if self._schedule.kind == "1f1b":
            actions = order.one_forward_one_backward(self._rank, self._ranks, number)
        else:
            actions = order.interleaved(self._rank, self._ranks, number, self._schedule.stages // self._ranks)
        with self._gradients.collected() as found:
            with self._one_autocast():
                for action in actions:
                    run.do(action)
            self._messages.settle()
        output = self._told(run)
        loss = _loss_of(output)

        def add(factor: torch.Tensor) -> None:
            self._gradients.add(found, factor)

        attached = Applied.apply(anchor(), add, loss)  # type: ignore[no-untyped-call]
        return pytree.tree_map(lambda leaf: attached if leaf is loss else leaf, output)

    def _one_autocast(self) -> AbstractContextManager[Any]:
        """A context in which autocast keeps one copy of the weights for all micro-batches; else each would have its
        own, until backward."""
        kind = self._device.type
        return torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))

    def _told(self, run: _Run) -> Any:
        """The output that the last stage has, on all processes of the pipeline or (not `tells_all`) on the last."""
        if not self.tells_all:
            return batches.join(run.outputs, run.micro_batches) if self._rank == self._ranks - 1 else None
        last = self._messages.ranks[-1]
        header: list[Any] = [None]
        output: Any = None
        if self._rank == self._ranks - 1:
            try:
                output = batches.join(run.outputs, run.micro_batches)
                header = [pytree.tree_map(_described, output)]
            except (RuntimeError, TypeError) as error:
                header = [error]
        try:
            dist.broadcast_object_list(header, last, self._share.pipeline, device=self._device)
            if isinstance(header[0], Exception):
                raise header[0]
            leaves, spec = pytree.tree_flatten(header[0] if output is None else output)
            tensors = [leaf.empty(self._device) if isinstance(leaf, _Described) else leaf for leaf in leaves]
            for tensor in tensors:
                if isinstance(tensor, torch.Tensor):
                    dist.broadcast(tensor.contiguous() if output is not None else tensor, last, self._share.pipeline)
        except RuntimeError as error:
            waiting.explain("the pipeline", error)
            raise
        return pytree.tree_unflatten(tensors, spec)

    def entries_for(self, args: Any, kwargs: Any) -> list[Entry]:
        """What each stage after the first must be sent for such inputs; found out once, by all processes together.

        Raises:
            RuntimeError: a stage cannot be entered; the same on all processes.
        """
        leaves, spec = pytree.tree_flatten((args, kwargs))
        autocast = torch.is_autocast_enabled(self._device.type)
        key = (spec, *map(_kind, leaves), self.model.training, torch.is_inference_mode_enabled(), autocast)
        if key not in self._entries:
            found: dict[int, Any] = {}
            for stage in self._mine:
                try:
                    found[stage] = self._stages.rehearse(stage, args, kwargs) if stage else None
                except Exception as error:
                    found[stage] = f"{type(error).__name__}: {error}"
            everyone: list[Any] = [None] * self._ranks
            try:
                dist.all_gather_object(everyone, found, self._share.pipeline)
            except RuntimeError as error:
                waiting.explain("the pipeline", error)
                raise
            entries = {stage: entry for one in everyone for stage, entry in one.items()}
            for stage in range(1, self._schedule.stages):
                if isinstance(entries[stage], str):
                    raise RuntimeError(f"pipeline: stage {stage} cannot be entered: {entries[stage]}")
            self._entries[key] = [entries[stage] for stage in range(self._schedule.stages)]
        return self._entries[key]


class _Run:
    """One forward, and what its backward needs."""

    def __init__(
        self,
        micro_batches: MicroBatches,
        stages: Stages,
        messages: Messages,
        schedule: Schedule,
        entries: list[list[Entry]],
        seed: tuple[int, int],
    ) -> None:
        self.micro_batches, self.makes_loss = micro_batches, False
        self.outputs: list[Any] = [None] * micro_batches.number
        self._stages, self._messages, self._entries, self._seed = stages, messages, entries, seed
        self._last, self._loss_fn = schedule.stages - 1, schedule.loss_fn
        self._kept: dict[tuple[int, int], tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        self._losses: dict[int, torch.Tensor] = {}

    def do(self, action: Action, gradients: list[Any] | None = None) -> None:
        """Run one forward or backward.

        Args:
            gradients: of the leaves of the last stage's output, where the loss was not made here.
        """
        if action.backward:
            self._backward(action.stage, action.micro_batch, gradients)
        else:
            self._forward(action.stage, action.micro_batch)

    def _forward(self, stage: int, index: int) -> None:
        (args, target), kwargs = self.micro_batches.inputs[index]
        sent: list[torch.Tensor] = []
        if stage:
            entry = self._entries[index][stage]
            sent = self._messages.receive(entry.shapes, entry.dtypes, stage, stage - 1, index, FORWARD)
            for tensor in sent:
                tensor.requires_grad_(torch.is_grad_enabled() and tensor.is_floating_point())
        following = None if stage == self._last else self._entries[index][stage + 1]
        seed = hash((*self._seed, stage, index)) % 2**63
        tensors, output = self._stages.run(stage, args, kwargs, sent, following, seed)
        if following is not None:
            self._messages.send(tensors, stage + 1, index, FORWARD)
        else:
            if self._loss_fn is not None and target is not None:
                output = self._loss_fn(output, target)
            if self.makes_loss:
                self._losses[index] = _loss_of(output) * self.micro_batches.weights[index]
                output = pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, output)
            self.outputs[index] = output
        if torch.is_grad_enabled():
            self._kept[stage, index] = sent, tensors

    def _backward(self, stage: int, index: int, gradients: list[Any] | None) -> None:
        sent, tensors = self._kept.pop((stage, index))
        if stage < self._last:
            floats = [tensor for tensor in tensors if tensor.is_floating_point()]
            arrived = self._messages.receive(
                [tuple(tensor.shape) for tensor in floats],
                [tensor.dtype for tensor in floats],
                stage,
                stage + 1,
                index,
                BACKWARD,
            )
            pairs = list(zip(floats, arrived, strict=True))
        elif self.makes_loss:
            loss = self._losses.pop(index)
            pairs = [(loss, torch.ones_like(loss))]
        else:
            assert gradients is not None
            leaves = _floats(self.outputs[index])
            pairs = [(leaf, gradient) for leaf, gradient in zip(leaves, gradients, strict=True) if gradient is not None]
            self.outputs[index] = None
        pairs = [(tensor, gradient) for tensor, gradient in pairs if tensor.requires_grad]
        if pairs:
            torch.autograd.backward([tensor for tensor, _ in pairs], [gradient for _, gradient in pairs])
        if stage:
            floats = [tensor for tensor in sent if tensor.is_floating_point()]
            grads = [torch.zeros_like(one) if one.grad is None else one.grad for one in floats]
            self._messages.send(grads, stage - 1, index, BACKWARD)


@dataclass(frozen=True)
class _Described:
    """A tensor that is to come."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def empty(self, device: torch.device) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=device)


def _described(leaf: Any) -> Any:
    return _Described(tuple(leaf.shape), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf


def _kind(leaf: Any) -> Any:
    return (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, torch.Tensor) else (type(leaf), leaf)


def _floats(output: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def _loss_of(output: Any) -> torch.Tensor:
    """The loss in a model's output.

    Raises:
        RuntimeError: there is none.
    """
    found = output
    if isinstance(output, Mapping):
        found = output.get("loss")
    elif hasattr(output, "loss"):
        found = output.loss
    elif isinstance(output, (tuple, list)) and output:
        found = output[0]
    if isinstance(found, torch.Tensor) and found.ndim == 0 and found.is_floating_point():
        return found
    raise RuntimeError(
        "pipeline: this schedule runs backwards inside of forward, so the model itself must make the loss: have "
        "forward return it (alone, first of a tuple, or as `loss`), or pass TorchPipelineParallelConfig(loss_fn=...) "
        "and call model(inputs, target=...). schedule='gpipe' takes a loss that the script makes."
    )

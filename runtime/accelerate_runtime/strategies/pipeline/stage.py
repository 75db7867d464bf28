"""One stage: the model's own forward, entered with what the stage before sent, left where the next one begins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ...devices import CPU
from .elsewhere import Elsewhere, covered, is_elsewhere
from .layout import Layout


@dataclass(frozen=True)
class Entry:
    """What a stage must be sent, for inputs of one kind.

    Attributes:
        places: where it stands among the leaves of the arguments of the module that begins the stage.
        leaves: how many there are.
        shapes, dtypes: of each tensor to be sent.
    """

    places: tuple[int, ...]
    leaves: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]


class _Left(BaseException):  # not an Exception: a model's own `except` must not catch it
    """The stage is done: the module that begins the next one was called, with these leaves."""

    def __init__(self, leaves: list[Any]) -> None:
        super().__init__()
        self.leaves = leaves


class _Entered(BaseException):
    """A rehearsal is done."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.entry = entry


class _Arrived(TorchFunctionMode):
    """Has what a stage was sent used wherever the model uses what stands for it."""

    def __init__(self, real: Callable[[Any], Any]) -> None:
        super().__init__()
        self._real = real

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(is_elsewhere(leaf) for leaf in pytree.tree_leaves((args, kwargs))):
            args, kwargs = pytree.tree_map(self._real, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))


class Stages:
    """The stages that this process holds, of a model whose other parts were taken away.

    Args:
        forward: the model's own.
        covers: for each stage that is here, the tensors of the other stages that are here too, and what stands for them
            (module, name, stand-in).
    """

    def __init__(
        self,
        model: nn.Module,
        forward: Callable[..., Any],
        layout: Layout,
        elsewhere: Elsewhere,
        covers: dict[int, list[tuple[nn.Module, str, torch.Tensor]]],
        device: torch.device,
    ) -> None:
        self._device = device
        self._buffers = [
            (module, name, buffer) for module in model.modules() for name, buffer in module.named_buffers(recurse=False)
        ]
        self._forward, self._layout, self._elsewhere, self._covers = forward, layout, elsewhere, covers
        self._stage: int | None = None
        self._sent: list[torch.Tensor] | None = None
        self._real: dict[int, torch.Tensor] = {}
        self._held: list[Any] = []  # what the keys of `_real` are the ids of
        modules = dict(model.named_modules())
        for name in layout.blocks:
            block = modules[name]
            block.forward = _Passing(block.forward, layout.stage_of[name], self)
            block.register_forward_pre_hook(self._at_block, with_kwargs=True, prepend=True)
        for index, name in enumerate(layout.cuts, 1):
            modules[name].register_forward_pre_hook(self._at_cut(index), with_kwargs=True, prepend=True)

    @property
    def running(self) -> int | None:
        """The stage that is being run, until it has what it was sent."""
        return self._stage

    def rehearse(self, stage: int, args: Any, kwargs: Any) -> Entry:
        """What a stage must be sent for inputs like these. Nothing is computed but shapes."""
        self._sent = None
        try:
            shared = [(module, name, buffer.clone()) for module, name, buffer in self._buffers]
            with torch.no_grad(), self._drawing_apart(), covered(shared):
                self._run(stage, args, kwargs)
        except _Entered as entered:
            return entered.entry
        except _Left:
            pass  # in another order
        raise self._never_called(stage)

    def run(
        self, stage: int, args: Any, kwargs: Any, sent: list[torch.Tensor], following: Entry | None, seed: int
    ) -> tuple[list[torch.Tensor], Any]:
        """Run a stage.

        Args:
            args, kwargs: the model's inputs, of one micro-batch.
            sent: what the stage before sent.
            following: what the next one needs; None for the last stage.
            seed: of the random numbers that it draws. The process's own go on as if it drew none, so that they stay the
                same on all processes.

        Returns:
            What to send to the next stage, and the model's output (of the last stage).

        Raises:
            RuntimeError: the model uses tensors of another stage; the message names them.
        """
        self._sent = sent
        try:
            with self._drawing_apart():
                torch.manual_seed(seed)
                output = self._run(stage, args, kwargs)
        except _Left as left:
            return self._leave(stage, left.leaves, following), None
        finally:
            self._real.clear()
            self._held.clear()
        if following is not None:
            raise self._never_called(stage + 1)
        return [], output

    def _run(self, stage: int, args: Any, kwargs: Any) -> Any:
        self._stage, self._elsewhere.used = stage, {}
        try:
            with ExitStack() as stack:
                stack.enter_context(covered(self._covers.get(stage, [])))
                if stage:
                    stack.enter_context(_Arrived(self.real))
                output = self._forward(*args, **kwargs)
                output = pytree.tree_map(self.real, output)
                if any(is_elsewhere(leaf) for leaf in pytree.tree_leaves(output)):
                    raise self._uses_others(stage)
                return output
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise RuntimeError(
                f"pipeline: before stage {stage} begins, forward reads the numbers of a tensor that another stage "
                f"computes ({error}): a stage knows only the shapes of what comes before it."
            ) from error
        finally:
            self._stage = None

    def _drawing_apart(self) -> AbstractContextManager[None]:
        kind = self._device.type
        if kind == CPU.name:
            return torch.random.fork_rng([])
        return torch.random.fork_rng([self._device], device_type=kind)

    def real(self, value: Any) -> Any:
        """What was sent in place of `value`."""
        return self._real.get(id(value), value)

    def _at_block(self, _: nn.Module, args: Any, kwargs: Any) -> Any:
        if not self._real:
            return None
        return pytree.tree_map(self.real, (args, kwargs))

    def _at_cut(self, index: int) -> Callable[..., Any]:
        def hook(_: nn.Module, args: Any, kwargs: Any) -> Any:
            if self._stage is None or index not in (self._stage, self._stage + 1):
                return None
            leaves = pytree.tree_leaves((args, kwargs))
            if index == self._stage + 1:
                raise _Left([self.real(leaf) for leaf in leaves])
            if self._sent is None:
                raise _Entered(_entry(leaves))
            self._enter(leaves)
            return pytree.tree_map(self.real, (args, kwargs))

        return hook

    def _enter(self, leaves: list[Any]) -> None:
        if self._real:
            raise RuntimeError(
                f"pipeline: {self._layout.cuts[self._stage - 1]!r}, which begins stage {self._stage}, is called twice "  # type: ignore[operator]
                "in one forward. A stage begins once: choose other TorchPipelineParallelConfig(split_points=[...])."
            )
        assert self._sent is not None
        self._elsewhere.used = {}
        for leaf in leaves:
            if is_elsewhere(leaf) and id(leaf) not in self._real:
                self._real[id(leaf)] = self._sent[len(self._real)]
                self._held.append(leaf)

    def _leave(self, stage: int, leaves: list[Any], following: Entry | None) -> list[torch.Tensor]:
        assert following is not None
        if len(leaves) != following.leaves:
            raise RuntimeError(
                f"pipeline: {self._layout.cuts[stage]!r} is called with {len(leaves)} values on stage {stage}, but "
                f"with {following.leaves} on stage {stage + 1}: the model's forward must do the same on all processes."
            )
        tensors = [leaves[place] for place in following.places]
        if any(is_elsewhere(tensor) for tensor in tensors):
            raise self._uses_others(stage)
        for tensor, shape, dtype in zip(tensors, following.shapes, following.dtypes, strict=True):
            if (tuple(tensor.shape), tensor.dtype) != (shape, dtype):
                raise RuntimeError(
                    f"pipeline: stage {stage} computes a tensor of shape {tuple(tensor.shape)}, {tensor.dtype}, where "
                    f"stage {stage + 1} expects {shape}, {dtype}. Shapes must follow from the shapes of the inputs."
                )
        return tensors

    def _uses_others(self, stage: int) -> RuntimeError:
        names = ", ".join(self._elsewhere.used) or "a value that an earlier stage did not send"
        return RuntimeError(
            f"pipeline: stage {stage} of {self._layout.stages} (cut at {', '.join(self._layout.cuts)}) uses {names}, "
            "which another stage has. Modules must be called in the order in which they are registered: "
            "name those that are used after the last block in "
            "TorchPipelineParallelConfig(at_end=[...]), or choose where to cut, split_points=[...]."
        )

    def _never_called(self, stage: int) -> RuntimeError:
        return RuntimeError(
            f"pipeline: forward did not call {self._layout.cuts[stage - 1]!r}, which begins stage {stage}: choose "
            "modules that every forward calls, TorchPipelineParallelConfig(split_points=[...])."
        )


def _entry(leaves: list[Any]) -> Entry:
    seen: dict[int, int] = {}
    for place, leaf in enumerate(leaves):
        if is_elsewhere(leaf):
            seen.setdefault(id(leaf), place)
    tensors = [leaves[place] for place in seen.values()]
    return Entry(
        tuple(seen.values()),
        len(leaves),
        tuple(tuple(tensor.shape) for tensor in tensors),
        tuple(tensor.dtype for tensor in tensors),
    )


class _Passing:
    """Stands in for a block's forward: where the block is before the stage that runs, what comes out is known from the
    last time it was given such shapes."""

    def __init__(self, forward: Callable[..., Any], stage: int, stages: Stages) -> None:
        self._own, self._stage, self._stages = forward, stage, stages
        self._known: dict[Any, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        running = self._stages.running
        if running is None or self._stage >= running:
            return self._own(*args, **kwargs)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if not all(isinstance(leaf, (torch.Tensor, int, float, str, type(None))) for leaf in leaves):
            return self._own(*args, **kwargs)
        key = (spec, *map(_kind, leaves))
        if key not in self._known:
            output = self._own(*args, **kwargs)
            if not all(is_elsewhere(leaf) for leaf in pytree.tree_leaves(output)):
                return output
            self._known[key] = pytree.tree_map(lambda tensor: tensor.detach(), output)
        return pytree.tree_map(lambda tensor: tensor.detach(), self._known[key])


def _kind(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape), leaf.dtype, is_elsewhere(leaf), torch.is_autocast_enabled(leaf.device.type)
    return type(leaf), leaf

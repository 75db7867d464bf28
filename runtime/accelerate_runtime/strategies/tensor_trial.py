"""Whether a block that is split gives what it gives whole: tried once, on the first batch, before it is trained."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.func import functional_call

from ..structures import map_leaves, map_tensors
from .dtensors import whole

_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}  # of the norm; for others, and under autocast, 0.05
_ADVICE = (
    "A layer between may count on the whole width: write .view(batch, length, -1, head_dim) with -1 for the number of "
    "heads, which is {size} times smaller on each process. Or leave the block whole, by a plan of the others: "
    "ParallelismConfig(tp_handler=TorchTensorParallelConfig(plan={{'layers.*.mlp.up': 'colwise', …}}))."
)


class Trial:
    """Runs a block with whole and with split weights at its first call, and compares.

    Made before the block is split.

    Args:
        size: over how many processes it is.
    """

    def __init__(self, name: str, block: nn.Module, size: int) -> None:
        self.name, self.size = name or type(block).__name__, size
        empty: dict[int, Any] = {
            id(p): nn.Parameter(torch.empty_like(p, device="meta"), requires_grad=False) for p in block.parameters()
        }
        self.twin = copy.deepcopy(block, empty)  # as it was, without numbers
        self.handle: Any = None
        self.done = False

    def arm(self, block: nn.Module) -> None:
        """Try at the next call of `block`, which is split by now."""
        self.handle = block.register_forward_pre_hook(self._run, with_kwargs=True)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _run(self, block: nn.Module, args: Any, kwargs: Any) -> None:
        if self.done:  # of a copy of the model, whose handle is the original's
            return
        self.done = True
        self.handle.remove()
        with torch.no_grad(), _evaluating(block), _evaluating(self.twin):
            weights = {name: whole(tensor) for name, tensor in _tensors(block)}
            theirs = map_tensors(whole, (args, kwargs), strict=False)
            args_whole, kwargs_whole = _apart(theirs)
            wanted = functional_call(self.twin, weights, args_whole, kwargs_whole)
            del weights
            try:
                found = block(*_apart(args), **_apart(kwargs))
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                raise ValueError(
                    f"tensor parallelism: {self.name} ({type(self.twin).__name__}) cannot be run once its layers are "
                    f"split: {str(error).splitlines()[0]}. {_ADVICE.format(size=self.size)}"
                ) from error
            finally:
                if isinstance(block, FSDPModule):
                    block.unshard()  # the trial's call has let go of what the real one needs
        self.twin = nn.Module()
        self._compare(found, wanted)

    def _compare(self, found: Any, wanted: Any) -> None:
        for ours, theirs in zip(_floats(found), _floats(wanted), strict=False):
            ours = whole(ours)
            exact = ours.dtype in _TOLERANCE and not torch.is_autocast_enabled(ours.device.type)
            allowed = _TOLERANCE[ours.dtype] if exact else 0.05
            same = ours.shape == theirs.shape
            if same and bool((ours - theirs).double().norm() <= allowed * theirs.double().norm() + 1e-12):
                continue
            if same and bool(torch.isnan(theirs).any()):
                continue  # it gives no numbers whole either
            raise ValueError(
                f"tensor parallelism: {self.name} gives other numbers once its layers are split than whole. "
                f"{_ADVICE.format(size=self.size)}"
            )


def _tensors(block: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from block.named_parameters(remove_duplicate=False)
    yield from block.named_buffers(remove_duplicate=False)


@contextmanager
def _evaluating(block: nn.Module) -> Iterator[None]:
    """Without dropout, whose masks would differ."""
    before = [(part, part.training) for part in block.modules()]
    block.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def _apart(values: Any) -> Any:
    """The arguments, with copies of the objects (a cache of keys and values, say) that a call may change."""

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.Tensor) or value is None:
            return value
        try:
            return copy.deepcopy(value)
        except (RuntimeError, TypeError):
            return value

    return map_leaves(leaf, values)


def _floats(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> None:
        if tensor.is_floating_point():
            found.append(tensor)

    map_tensors(note, value, strict=False)
    return found

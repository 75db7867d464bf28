"""From the parameters that a script made to the shards that replace them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from ..collectives import broadcast_object_list

NEED_WHOLE_TENSORS = ("LBFGS", "Adafactor")
"""Optimizers that would step something else on parts of parameters."""

Init = Callable[[nn.Module], None]


class Replaced(nn.Parameter):
    """A parameter that a shard has replaced: using it (in a regulariser over a list made before, say) is an error."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise RuntimeError(
            f"{getattr(func, '__name__', func)}() was given a parameter of before prepare(), which has sharded the "
            "model: take the parameters from the prepared model, after prepare()."
        )


class Sharded:
    """Which parameter has replaced which. Those of before are not kept alive."""

    def __init__(self) -> None:
        self._new: dict[int, tuple[weakref.ref[nn.Parameter], nn.Parameter]] = {}

    def note(self, before: dict[str, nn.Parameter], after: dict[str, nn.Parameter]) -> None:
        """Remember the pairs of one name, and free the memory of those of before."""
        for name, old in before.items():
            new = after[name]
            if old is not new and not isinstance(old, Replaced):
                self._new[id(old)] = (weakref.ref(old), new)
                old.grad = None
                if not old.is_meta:
                    old.data = torch.empty(0, dtype=old.dtype)
                old.__class__ = Replaced

    def current(self, parameters: Iterable[Any]) -> list[Any]:
        """What the parameters are now."""
        return [self._of(parameter) for parameter in parameters]

    def replace_in(self, optimizer: torch.optim.Optimizer) -> None:
        """Have `optimizer` hold the new parameters, each with the part of its state that belongs to it."""
        from .dtensors import like

        for group in optimizer.param_groups:
            for index, old in enumerate(group["params"]):
                new = self._of(old)
                if new is old:
                    continue
                group["params"][index] = new
                state = optimizer.state.pop(old, None)
                if state is not None:
                    optimizer.state[new] = {
                        name: like(value, new) if isinstance(value, torch.Tensor) else value
                        for name, value in state.items()
                    }

    def _of(self, parameter: Any) -> Any:
        entry = self._new.get(id(parameter))
        return entry[1] if entry is not None and entry[0]() is parameter else parameter


def bring(part: nn.Module, device: torch.device, init: Init | None, given: dict[int, torch.Tensor]) -> None:
    """Bring what is not sharded yet to `device`, with the numbers that the main process has. All processes call it.

    What is on the meta device gets memory; where the main process has no numbers either, they are made there.

    Args:
        init: makes the numbers of a module; by default its `reset_parameters`.
        given: what tensors of the meta device have become, so that tied ones stay tied.
    """
    is_main = dist.get_rank() == 0
    trouble: str | None = None
    for module in part.modules():
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        bare = any(tensor.is_meta and id(tensor) not in given for tensor in own)
        _give_memory(module, device, given)
        if bare and is_main and trouble is None:
            trouble = _make_numbers(module, init)
    (trouble,) = broadcast_object_list([trouble])
    if trouble is not None:
        raise ValueError(trouble)
    seen: set[int] = set()
    for tensor in [*part.parameters(), *part.buffers()]:
        if not isinstance(tensor, DTensor) and id(tensor) not in seen:
            seen.add(id(tensor))
            numbers = tensor.detach().contiguous()  # gloo sends strided tensors wrongly
            dist.broadcast(numbers, 0)
            if numbers.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(numbers)


def _give_memory(module: nn.Module, device: torch.device, given: dict[int, torch.Tensor]) -> None:
    for shelf in (module._parameters, module._buffers):
        for name, tensor in shelf.items():
            if tensor is None or isinstance(tensor, DTensor):
                continue
            if not tensor.is_meta:
                tensor.data = tensor.data.to(device)
                continue
            if id(tensor) not in given:
                empty = torch.empty_like(tensor, device=device)
                parameter = isinstance(tensor, nn.Parameter)
                given[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if parameter else empty
            shelf[name] = given[id(tensor)]  # type: ignore[assignment]


def _make_numbers(module: nn.Module, init: Init | None) -> str | None:
    """Have the module make its numbers; returns what is wrong where it cannot."""
    if init is not None:
        init(module)
        return None
    reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
    if reset is None:
        return (
            f"the model is on the meta device, and {type(module).__name__} has no reset_parameters() to make its "
            "numbers: pass FullyShardedDataParallelPlugin(param_init_fn=...), or have the main process load them."
        )
    reset()
    return None

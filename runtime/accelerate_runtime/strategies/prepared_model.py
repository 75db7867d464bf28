"""The model that `prepare` returns where several processes train it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .. import waiting
from ..structures import map_tensors


class PreparedModel(DistributedDataParallel):
    """DistributedDataParallel through which the script's own attributes and methods are still seen.

    - Plain attributes, parameters, buffers and modules without trainable parameters (a loss function) are the model's;
      those that the model has may be set, too.
    - Methods run, and gradients of what they return are exchanged as those of forward are.
    - Trainable parts (`model.encoder`) are refused: called beside forward, nobody would exchange their gradients, and
      the processes would drift apart in silence. `accelerator.unwrap_model(model).encoder` is there for all else.
    - Names that begin with an underscore are not passed on.
    """

    _awaits_backward = False

    def __init__(self, module: nn.Module, **kwargs: Any) -> None:
        super().__init__(module, **kwargs)
        self.__dict__["_complete"] = True

    # Attributes and methods of the model

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = self.__dict__.get("_modules", {}).get("module")
            if module is None or name.startswith("_") or not hasattr(module, name):
                raise
        value = getattr(module, name)
        if inspect.ismethod(value) and isinstance(value.__self__, nn.Module):
            return self._as_forward(value)
        if isinstance(value, nn.Module) and any(parameter.requires_grad for parameter in value.parameters()):
            self._refuse_part(name)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        module = self.__dict__.get("_modules", {}).get("module")
        mine = "_complete" not in self.__dict__ or name in self.__dict__ or hasattr(type(self), name)
        if mine or name.startswith("_") or not hasattr(module, name):
            super().__setattr__(name, value)
        elif isinstance(value, (nn.Module, nn.Parameter)):
            raise TypeError(
                f"the prepared model's {name!r} cannot be replaced: gradients of the new one would not be exchanged. "
                "Replace it before prepare()."
            )
        else:
            setattr(module, name, value)

    def _refuse_part(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the prepared model does not pass on its trainable part {name!r}: several processes train it, and "
            "gradients are exchanged only where the prepared model itself (or a method of it) is called. Use "
            f"accelerator.unwrap_model(model).{name} for what needs no gradients."
        )

    def _as_forward(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """`method`, whose gradients are exchanged."""

        @functools.wraps(method)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled() or not self.require_backward_grad_sync:
                return method(*args, **kwargs)
            empty = [parameter for parameter in self.module.parameters() if parameter.grad is None]
            output = method(*args, **kwargs)
            told = self._trouble_with(output, empty)
            if told is not None:
                raise RuntimeError(f"the prepared model's method {method.__name__!r} {told}")
            if _has_history(output):  # as DDP does where its forward ends
                self.require_forward_param_sync = True
                self.reducer.prepare_for_backward([])
            return output

        return run

    def _trouble_with(self, output: Any, empty: list[nn.Parameter]) -> str | None:
        if any(parameter.grad is not None for parameter in empty):
            return "ran backward, where gradients are not exchanged: return the loss, for accelerator.backward(loss)."
        special = self._what_is_special()
        if special is None or not _has_history(output):
            return None
        return (
            f"computed something with gradients, which {special} are exchanged for forward alone: have forward call it."
        )

    def _what_is_special(self) -> str | None:
        if self._join_config.enable:
            return "inside join_uneven_inputs"
        if self.find_unused_parameters:
            return "with find_unused_parameters=True"
        return "with static_graph=True" if self.static_graph else None

    # Forward

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The model's forward."""
        try:
            if self._join_config.enable:
                return self._forward_joined(*inputs, **kwargs)
            return super().forward(*inputs, **kwargs)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            waiting.explain("the model's forward", error)  # buffers are exchanged there
            raise

    def _forward_joined(self, *inputs: Any, **kwargs: Any) -> Any:
        """Inside join_uneven_inputs, where processes that have run out follow one backward per forward."""
        if not torch.is_grad_enabled():
            with self.no_sync():  # tells them that no backward comes
                return super().forward(*inputs, **kwargs)  # type: ignore[no-untyped-call]
        if self._awaits_backward:
            raise RuntimeError(
                "the prepared model was called again before backward, inside join_uneven_inputs: processes that have "
                "run out of batches cannot follow that. Give every process as many batches instead (even_batches=True)."
            )
        output = super().forward(*inputs, **kwargs)  # type: ignore[no-untyped-call]
        if self.require_backward_grad_sync:
            map_tensors(self._watch, output, strict=False)
        return output

    def _watch(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.requires_grad:
            self._awaits_backward = True
            tensor.register_hook(self._note_backward)  # type: ignore[no-untyped-call]
        return tensor

    def _note_backward(self, _: torch.Tensor) -> None:
        self._awaits_backward = False


def _has_history(output: Any) -> bool:
    found = []
    map_tensors(lambda tensor: found.append(tensor.grad_fn is not None), output, strict=False)
    return any(found)

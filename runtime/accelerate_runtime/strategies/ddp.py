"""Data parallelism over torch's DistributedDataParallel: gloo on CPU, NCCL on GPUs."""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .. import topology
from ..plugins import DistributedDataParallelKwargs
from .base import Strategy

_alive: weakref.WeakSet[PreparedModel] = weakref.WeakSet()


class PreparedModel(DistributedDataParallel):
    """DistributedDataParallel that says where a missing attribute is to be found."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = self.__dict__.get("_modules", {}).get("module")
            if module is None or not hasattr(module, name):
                raise
            raise AttributeError(
                f"the prepared model is wrapped for several processes and does not pass on {name!r}: use "
                f"accelerator.unwrap_model(model).{name} (and call the prepared model itself in training)."
            ) from None


class DataParallel(Strategy):
    """Each process holds the whole model; gradients are averaged in backward."""

    def wrap(self, model: nn.Module, evaluation: bool) -> nn.Module:
        if evaluation or not any(parameter.requires_grad for parameter in model.parameters()):
            return model  # there is nothing to average
        handler = self.handlers.get(DistributedDataParallelKwargs)
        kwargs = handler.to_kwargs() if handler is not None else {}
        if self.place.device.type != "cpu":
            kwargs["device_ids"] = [self.place.device.index]
        wrapped = PreparedModel(model, **kwargs)
        _alive.add(wrapped)
        topology.before_shutdown(_let_go)
        return wrapped

    def unwrap(self, model: nn.Module) -> nn.Module:
        return model.module if isinstance(model, DistributedDataParallel) else model

    def no_sync(self, model: nn.Module) -> AbstractContextManager[Any]:
        return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()


def _let_go() -> None:
    """Drop the reducers: freed after their process group they can hang the interpreter's exit."""
    for model in list(_alive):
        for name in ("reducer", "logger", "process_group"):
            model.__dict__.pop(name, None)

"""Data parallelism over torch's DistributedDataParallel: gloo on CPU, NCCL on GPUs."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .. import topology
from ..arguments import handler_of
from ..plugins import DistributedDataParallelKwargs
from . import comm_hooks
from .alike import check_alike
from .base import Strategy
from .prepared_model import PreparedModel

_alive: weakref.WeakSet[PreparedModel] = weakref.WeakSet()


class DataParallel(Strategy):
    """Each process holds the whole model; gradients are averaged in backward."""

    def wrap(self, model: nn.Module, evaluation: bool) -> nn.Module:
        if evaluation or not any(parameter.requires_grad for parameter in model.parameters()):
            return model  # there is nothing to average
        check_alike("ddp", self.setup, model)
        handler = handler_of(self.setup.handlers, DistributedDataParallelKwargs)
        kwargs: dict[str, Any] = {}
        if handler is not None:
            comm_hooks.check(handler, self.setup.mixed_precision)
            kwargs = handler.to_kwargs()
        if self.place.device.type != "cpu":
            kwargs["device_ids"] = [self.place.device.index]
        wrapped = PreparedModel(model, **kwargs)
        if handler is not None:
            handler.register_comm_hook(wrapped)
        _alive.add(wrapped)
        topology.before_shutdown(_let_go)
        return wrapped

    def no_sync(self, model: nn.Module) -> AbstractContextManager[Any]:
        return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()

    def sync_in_backward(self, model: nn.Module) -> AbstractContextManager[None]:
        """A context in which backward exchanges the gradients of `model`, though its forward ran under `no_sync`."""
        return _sync_in_backward(model)


@contextmanager
def _sync_in_backward(model: nn.Module) -> Iterator[None]:
    """A context in which backward exchanges the gradients of `model`, though its forward ran under `no_sync`.

    Raises:
        ValueError: the model looks for unused parameters, which is done where forward ends.
    """
    if not isinstance(model, DistributedDataParallel):
        yield
        return
    if model.find_unused_parameters:
        raise ValueError(
            "trigger_sync_in_backward: a model with DistributedDataParallelKwargs(find_unused_parameters=True) looks "
            "for them in forward, which ran without exchanging gradients: leave that forward out of no_sync instead."
        )
    before = model.require_backward_grad_sync, model.require_forward_param_sync
    model.require_backward_grad_sync = model.require_forward_param_sync = True
    model.reducer.prepare_for_backward([])  # what a forward outside no_sync would have done
    try:
        yield
    finally:
        model.require_backward_grad_sync, model.require_forward_param_sync = before


def _let_go() -> None:
    """Drop the reducers: freed after their process group they can hang the interpreter's exit."""
    for model in list(_alive):
        for name in ("reducer", "logger", "process_group"):
            model.__dict__.pop(name, None)

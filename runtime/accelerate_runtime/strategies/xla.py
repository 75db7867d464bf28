"""TPUs, and whatever else XLA compiles for, by torch_xla: one process, whose batches are divided over its devices.

Source: the design of https://docs.pytorch.org/xla/master/perf/spmd_basic.html
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn

from .. import devices, xla
from ..structures import map_tensors, send_to_device
from ..topology import DistributedType
from .base import Strategy, StrategySetup


class XLA(Strategy):
    """Each device holds the whole model and a part of each batch; XLA averages gradients as it runs backward.

    Nothing runs before it is needed: what a script asks for is collected, and runs where a batch begins, where an
    optimizer has stepped, and where a number is read.
    """

    distributed_type = DistributedType.XLA
    exchanges = False

    def __init__(self, setup: StrategySetup) -> None:
        super().__init__(setup)
        if setup.place.device.type != devices.XLA.name:
            xla.refuse(
                f"but this process trains on {setup.place.device}: install it ({xla.INSTALL}), set PJRT_DEVICE=TPU (or "
                "CPU), and leave out cpu=True, ACCELERATE_USE_CPU and USE_TORCH_XLA=0."
            )
        if setup.mixed_precision == "fp8":
            xla.refuse("with mixed_precision='fp8', which it does not have: use 'bf16' or 'no'.")
        self._mesh = xla.mesh()
        self._watched: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    def move(self, model: nn.Module) -> None:
        """Bring `model` to the device, its parameters staying the objects that optimizers and scripts hold."""
        future = torch.__future__
        before = future.get_swap_module_params_on_conversion()
        future.set_swap_module_params_on_conversion(True)  # else torch makes new ones
        try:
            model.to(self.place.device)
        finally:
            future.set_swap_module_params_on_conversion(before)

    def wrap(self, model: nn.Module, evaluation: bool) -> nn.Module:
        """`model` itself, whole on each device."""
        return model

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Have what a step is made of run where it ends, and its state dict lie on the CPU."""
        if optimizer not in self._watched:
            self._watched.add(optimizer)
            optimizer.register_step_post_hook(_run)
            optimizer.register_state_dict_post_hook(lambda _, state: _on_the_cpu(state))

    def deliver(self, batch: Any, device: torch.device, non_blocking: bool) -> Any:
        """`batch` on the devices, each with its part of the samples."""
        _run()
        return map_tensors(self._divide, send_to_device(batch, device, non_blocking), strict=False)

    def _divide(self, tensor: torch.Tensor) -> torch.Tensor:
        from torch_xla.distributed.spmd import mark_sharding

        if tensor.ndim:
            mark_sharding(tensor, self._mesh, ("data", *[None] * (tensor.ndim - 1)))
        return tensor

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        """The state dict, on the CPU."""
        _run()
        first: dict[int, torch.Tensor] = {}
        own = dict(model.named_parameters(remove_duplicate=False))
        state = model.state_dict()
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                tied = id(own.get(name, value))
                state[name] = first.setdefault(tied, value.cpu())
        return state


def _run(*_: Any) -> None:
    """Have the devices begin with what was collected."""
    import torch_xla

    torch_xla.sync()


def _on_the_cpu(data: Any) -> Any:
    return map_tensors(lambda tensor: tensor.cpu(), data, strict=False)

"""Tensor parallelism over torch's DTensor: each process has a part of every split layer, and all work on one batch.

With data parallelism beside it (`dp_shard_size`, `dp_replicate_size`) the parts are sharded, or copied, by FSDP2 on the
same mesh.

Source: the design of https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel, parallelize_module

from ..plugins.parallelism import TorchTensorParallelConfig
from ..precision.scaling import parameters_of
from ..random import draw_alike
from ..same_batches import check_first_inputs
from ..structures import map_tensors
from ..topology import DistributedType
from ..versions import is_torch_version
from ..waiting import together
from . import dtensors
from .base import StrategySetup
from .fsdp import FullyShardedDataParallel
from .recomputing import recompute
from .sharding import bring
from .tensor_plan import Plan, plan_for
from .tensor_trial import Trial
from .wrapping import parts_to_wrap

_MINIMUM = "2.13"


class TensorParallel(FullyShardedDataParallel):
    """Layers are split as a plan says; what is in no plan stays whole on each process of the group."""

    def __init__(self, setup: StrategySetup) -> None:
        if not is_torch_version(">=", _MINIMUM):
            raise ImportError(
                f"tensor parallelism needs torch {_MINIMUM} or later, but {torch.__version__} is installed: earlier "
                f"ones give wrong gradient norms. pip install 'torch>={_MINIMUM}'"
            )
        if setup.parallelism is None or not setup.parallelism.tp_enabled:
            raise ValueError("strategy='tensor' needs the number of processes: ParallelismConfig(tp_size=...)")
        if setup.mixed_precision in ("fp16", "fp8"):
            raise ValueError(f"mixed_precision={setup.mixed_precision!r} with tp_size > 1 is not supported: use 'bf16'")
        self.config = setup.parallelism
        super().__init__(setup)
        self.tensor_mesh: DeviceMesh = setup.mesh["tp"]
        self.handler = self.config.tp_handler or TorchTensorParallelConfig()
        self._with_data = bool(self.config.dp_dim_names)
        if self.plugin.cpu_offload and not self._with_data:
            raise ValueError("cpu_offload with tp_size alone is not supported: it needs dp_shard_size > 1")
        self._contexts = ExitStack()
        self._checked: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    @property
    def distributed_type(self) -> DistributedType | None:  # type: ignore[override]
        """FSDP where it shards; else that of the processes."""
        return DistributedType.FSDP if self.config.dp_shard_enabled else None

    # Preparing

    def wrap(self, model: nn.Module, evaluation: bool) -> nn.Module:
        """`model`, its layers split (and sharded) in place.

        Raises:
            ValueError: nothing can be split, or the plan does not fit.
        """
        if evaluation or not any(True for _ in model.parameters()):
            return model.to(self.place.device)
        self._check(model, "tensor")
        before = dict(model.named_parameters(remove_duplicate=False))
        plan = plan_for(model, self.handler, self.config.tp_size)
        trials = [
            (name, Trial(name, model.get_submodule(name), self.config.tp_size)) for name in _one_of_each(model, plan)
        ]
        given: dict[int, torch.Tensor] = {}
        draw_alike(self.division)
        self._split(model, plan, given)
        self._give_plain_outputs(model, plan)
        if self._with_data:
            self._shard(model, given)
        else:
            bring(model, self.place.device, self.plugin.param_init_fn, given)
            if self.plugin.activation_checkpointing:
                parts = parts_to_wrap(model, self.plugin) or list(model.children())
                recompute(parts, offload=self.plugin.activation_checkpointing_offload)
        self._note(model, before)
        for name, trial in trials:
            trial.arm(model.get_submodule(name))
        check_first_inputs(model, self.division)
        return model

    def _split(self, model: nn.Module, plan: Plan, given: dict[int, torch.Tensor]) -> None:
        """Bring the plan's layers to the device one by one, each cut to this process's part at once."""
        tied = _tied(model)
        for name, style in plan.styles.items():
            layer = model.get_submodule(name)
            if not list(layer.children()):
                bring(layer, self.place.device, self.plugin.param_init_fn, given)
            parallelize_module(layer, self.tensor_mesh, style, src_data_rank=None)
        for names in tied:
            _tie_again(model, names, plan)

    def _give_plain_outputs(self, model: nn.Module, plan: Plan) -> None:
        """Have the model give plain tensors; but where it is trained, logits stay split for the loss."""

        def leave(_: nn.Module, __: Any, output: Any) -> Any:
            return map_tensors(plain, output, strict=False)

        def plain(tensor: torch.Tensor) -> torch.Tensor:
            tensor = dtensors.whole(tensor)
            # of a view FSDP2 could lose sight, where a script changes it in place
            return tensor.clone() if self._with_data and tensor._is_view() else tensor

        if not plan.heads:
            model.register_forward_hook(leave)
            return
        for name in plan.heads:
            model.get_submodule(name).register_forward_hook(_whole_without_gradients)
        self._contexts.enter_context(loss_parallel())

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Have `optimizer` train this process's parts; before its first step, what is whole on each process of a
        group is checked to have the same gradient there."""
        super().adopt(optimizer)
        if optimizer not in self._checked and any(isinstance(p, DTensor) for p in parameters_of(optimizer)):
            self._checked.add(optimizer)
            optimizer.register_step_pre_hook(lambda *_: _sum_up(parameters_of(optimizer)))

            unchecked = True

            def check(*_: Any) -> None:  # it stays: torch does not let hooks go while it calls them
                nonlocal unchecked
                if unchecked:
                    unchecked = False
                    self._check_gradients(optimizer)

            optimizer.register_step_pre_hook(check)

    # Training

    def total_norm(self, parameters: list[nn.Parameter], norm_type: float) -> torch.Tensor:
        """The norm over the gradients of all processes."""
        _sum_up(parameters)
        return super().total_norm(parameters, norm_type)

    def clip_grad_norm(self, parameters: list[nn.Parameter], max_norm: float, norm_type: float) -> torch.Tensor:
        """Clip to the norm over the gradients of all processes; returns that norm before."""
        _sum_up(parameters)
        return super().clip_grad_norm(parameters, max_norm, norm_type)

    def clip_grad_value(self, parameters: Iterable[nn.Parameter], clip_value: float) -> None:
        """Clip each number of the gradients."""
        parameters = list(parameters)
        _sum_up(parameters)
        super().clip_grad_value(parameters, clip_value)

    def _check_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Raise ValueError where a parameter that is whole on each process of the group has not one gradient there."""
        numbers = []
        for parameter in parameters_of(optimizer):
            split = isinstance(parameter, DTensor) and "tp" in (parameter.device_mesh.mesh_dim_names or ())
            if parameter.grad is not None and not split:
                grad = parameter.grad
                local = grad.to_local() if isinstance(grad, DTensor) else grad
                numbers.append(local.double().abs().sum())
            else:
                numbers.append(torch.zeros((), dtype=torch.float64, device=self.place.device))
        mine = torch.stack(numbers).to(self.place.device)
        least, most = mine.clone(), mine.clone()
        group = self.tensor_mesh.get_group()
        together("comparing gradients", dist.all_reduce, least, dist.ReduceOp.MIN, group)
        together("comparing gradients", dist.all_reduce, most, dist.ReduceOp.MAX, group)
        wrong = ((most - least) > 1e-4 * most.abs() + 1e-12).nonzero().flatten().tolist()
        if wrong:
            shapes = [tuple(p.shape) for p in parameters_of(optimizer)]
            raise ValueError(
                "tensor parallelism: parameters that are whole on each process got different gradients there, so that "
                f"they would drift apart: number {', '.join(map(str, wrong[:8]))} of the optimizer's (shapes "
                f"{', '.join(str(shapes[one]) for one in wrong[:8])}). They stand between split layers, or get split "
                "activations: give them a style in the plan ('replicated_with_grad_allreduce', or SequenceParallel())."
            )

    # What FSDP is told

    def _build_mesh(self) -> Any:
        if not self.config.dp_dim_names:
            return None
        names = ("dp_replicate", "dp_shard") if self.config.dp_replicate_enabled else ("dp_shard",)
        return self.setup.mesh[names]


def _sum_up(parameters: Iterable[torch.Tensor]) -> None:
    """Make the sums over the group that gradients of norms of split activations are still to become."""
    for parameter in parameters:
        gradient = parameter.grad
        if isinstance(parameter, DTensor) and isinstance(gradient, DTensor):
            if gradient.placements != parameter.placements:
                parameter.grad = gradient.redistribute(placements=parameter.placements)


def _whole_without_gradients(_: nn.Module, __: Any, output: Any) -> Any:
    return output if torch.is_grad_enabled() else dtensors.whole(output)


def _one_of_each(model: nn.Module, plan: Plan) -> list[str]:
    """Of the plan's blocks one of each class: those of one class are written alike."""
    found: dict[Any, str] = {}
    for name in plan.blocks(model):
        block = model.get_submodule(name)
        found.setdefault((type(block), len(list(block.modules()))), name)
    return list(found.values())


def _tied(model: nn.Module) -> list[list[str]]:
    """The names of each parameter that has several."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [found for found in names.values() if len(found) > 1]


def _tie_again(model: nn.Module, names: list[str], plan: Plan) -> None:
    """Have the parameter be one again after its layers were split.

    Raises:
        ValueError: they were split differently.
    """
    parameters = [model.get_parameter(name) for name in names]
    first = parameters[0]
    if all(parameter is first for parameter in parameters):
        return
    kinds = {parameter.placements if isinstance(parameter, DTensor) else None for parameter in parameters}
    if len(kinds) > 1:
        raise ValueError(
            f"tensor parallelism: {' and '.join(names)} are one parameter, but the plan splits them differently: split "
            "an Embedding by rows ('rowwise') and the Linear that shares its weight by columns ('colwise_rep'), or "
            "leave both out."
        )
    for name in names[1:]:
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, first)

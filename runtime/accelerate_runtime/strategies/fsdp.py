"""Sharded data parallelism over torch's `fully_shard` (FSDP2): each process keeps a part of every parameter.

Source: the design of https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState
from torch.distributed.tensor import DTensor

from .. import pieces, waiting
from ..devices import has_its_own_memory
from ..environment import get_int_from_env
from ..meshes import hold, make_mesh, part_of_mesh
from ..plugins.fsdp import FullyShardedDataParallelPlugin
from ..precision.fp8_gathering import gather_in_8_bits, scale_at_once
from ..precision.scaling import parameters_of
from ..topology import DistributedType
from . import dtensors
from .alike import check_alike
from .base import Strategy, StrategySetup
from .buffers import share_buffers
from .recomputing import recompute
from .sharding import NEED_WHOLE_TENSORS, Sharded, bring
from .wrapping import ignored_parameters, parameters_that_cannot_be_sharded, parts_to_wrap

logger = logging.getLogger(__name__)

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}


class FullyShardedDataParallel(Strategy):
    """Parameters are gathered part by part for forward and backward; gradients are averaged and sharded."""

    distributed_type = DistributedType.FSDP

    def __init__(self, setup: StrategySetup) -> None:
        super().__init__(setup)
        self.plugin: FullyShardedDataParallelPlugin = setup.plugin or FullyShardedDataParallelPlugin()
        self.mesh = self._build_mesh()
        self._sharded = Sharded()
        self._exchanging = True
        pieces.keep_spread_tensors_out_of_files()
        dtensors.read_whole_numbers()
        if self.place.device.type == "cpu":
            dtensors.draw_as_one_process()
        self._adopted: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    @property
    def sharded_states(self) -> bool:  # type: ignore[override]
        """Whether states are written in shards: as the plugin says."""
        return bool(self.plugin.state_dict_type == "SHARDED_STATE_DICT")

    # Preparing

    def move(self, model: nn.Module) -> None:
        """Nothing yet: parts go to the device as they are sharded, so that the whole model need not fit there."""

    def wrap(self, model: nn.Module, evaluation: bool) -> nn.Module:
        """`model`, its parameters sharded in place; its class is changed to one that is also an FSDPModule."""
        if evaluation or not any(True for _ in model.parameters()):
            return model.to(self.place.device)
        self._check(model, "fsdp")
        before = dict(model.named_parameters(remove_duplicate=False))
        self._shard(model, {})
        self._note(model, before)
        return model

    def _check(self, model: nn.Module, name: str) -> None:
        """Raise ValueError for what cannot be sharded; bring parameters to the type that the optimizer needs."""
        if any(isinstance(parameter, DTensor) for parameter in model.parameters()):
            raise ValueError(
                "prepare() was given a model that is sharded already (fully_shard, parallelize_module): pass it as it "
                "was made"
            )
        check_alike(name, self.setup, model)
        _upcast(model, self.setup.mixed_precision)

    def _shard(self, model: nn.Module, given: dict[int, torch.Tensor]) -> None:
        """Bring the parts to the device one by one, each sharded at once.

        Args:
            given: what tensors of the meta device have become.
        """
        device, plugin = self.place.device, self.plugin
        parts = parts_to_wrap(model, plugin)
        if plugin.activation_checkpointing:
            recompute(parts or list(model.children()), offload=plugin.activation_checkpointing_offload)
        arguments: dict[str, Any] = {
            "mesh": self.mesh,
            "offload_policy": self._offload_policy(),
        }
        policy = self._precision_policy()
        inner = dataclasses.replace(policy, output_dtype=None)  # of an inner part: the outer would meet two types
        for part in [*parts, model]:  # one at a time: only one whole part needs to fit on the device
            bring(part, device, plugin.param_init_fn, given)
            gather_in_8_bits(part, ignored_parameters(model, plugin.ignored_modules))
            whole = parameters_that_cannot_be_sharded(model)
            arguments["ignored_params"] = ignored_parameters(model, plugin.ignored_modules) | whole or None
            # what is in no wrapped part stays gathered: backward begins with it
            stays = part is model and bool(parts)
            arguments["reshard_after_forward"] = plugin.reshard_after_forward and not stays
            fully_shard(part, mp_policy=policy if part is model else inner, **arguments)
        for parameter in parameters_that_cannot_be_sharded(model) - ignored_parameters(model, plugin.ignored_modules):
            parameter.register_post_accumulate_grad_hook(self._average)  # type: ignore[no-untyped-call]
        share_buffers(model, self.setup)
        for group in _groups(model):
            hold(group.mesh_info)
        scale_at_once(model)
        _gather_in_methods(model)

    def _note(self, model: nn.Module, before: dict[str, nn.Parameter]) -> None:
        """Remember which parameters have replaced those of `before`."""
        self._sharded.note(before, dict(model.named_parameters(remove_duplicate=False)))
        dtensors.takes_whole_weights(model)
        pieces.keep_out_of_files(model)

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        """Have `optimizer` train the shards of the parameters that it was made with, and keep its state's shards.

        Raises:
            ValueError: it cannot work on shards.
        """
        if type(optimizer).__name__ in NEED_WHOLE_TENSORS:
            raise ValueError(
                f"prepare() was given {type(optimizer).__name__}, which works on whole parameters, of which FSDP has a "
                "part on each process. Use another optimizer, or train without FSDP."
            )
        self._sharded.replace_in(optimizer)
        if optimizer not in self._adopted and any(isinstance(p, DTensor) for p in parameters_of(optimizer)):
            self._adopted.add(optimizer)
            dtensors.adapt_loops(optimizer)
            dtensors.speaks_whole_state(optimizer, keep=self.place.is_main_process)

    def clip_grad_value(self, parameters: Iterable[nn.Parameter], clip_value: float) -> None:
        """Clip each number of the gradients."""
        parameters = list(parameters)
        for sharded in (True, False):  # apart: torch's loops over many tensors take no mixture
            chosen = [one for one in parameters if isinstance(one, DTensor) == sharded]
            if any(one.grad is not None for one in chosen):
                super().clip_grad_value(chosen, clip_value)

    def current(self, parameters: Iterable[Any]) -> list[Any]:
        """The shards of the parameters."""
        return self._sharded.current(parameters)

    # Training

    @contextmanager
    def no_sync(self, model: nn.Module) -> Iterator[None]:
        """A context in which a backward leaves whole gradients in this process.

        Where parameters are kept gathered until backward (`reshard_after_forward=False`), they stay so until the window
        ends.
        """
        if not isinstance(model, FSDPModule):
            yield
            return
        keep = not self.plugin.reshard_after_forward
        before, self._exchanging = self._exchanging, False
        model.set_requires_gradient_sync(False)
        if keep:
            model.set_reshard_after_backward(False)
        try:
            yield
        finally:
            self._exchanging = before
            model.set_requires_gradient_sync(True)
            if keep:
                model.set_reshard_after_backward(True)

    def sync_in_backward(self, model: nn.Module) -> AbstractContextManager[None]:
        """Nothing to do: FSDP2 asks in backward whether to exchange."""
        return nullcontext()

    def withheld(self, model: nn.Module) -> bool:
        """Whether a window is open whose gradients are not sharded yet."""
        return any(
            parameter.unsharded_accumulated_grad is not None or _unsharded_gradient(parameter) is not None
            for group in _groups(model)
            for parameter in group.fsdp_params
        )

    def total_norm(self, parameters: list[nn.Parameter], norm_type: float) -> torch.Tensor:
        """The norm over the gradients of all processes."""
        return dtensors.total_norm(parameters, norm_type)

    def clip_grad_norm(self, parameters: list[nn.Parameter], max_norm: float, norm_type: float) -> torch.Tensor:
        """Clip to the norm over the gradients of all processes; returns that norm before."""
        return dtensors.clip_grad_norm(parameters, max_norm, norm_type)

    # Files

    def settle(self, model: nn.Module) -> None:
        """Free what an evaluation has left gathered: no backward came to do it."""
        for part in model.modules():
            if isinstance(part, FSDPModule):
                part.reshard()

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        """The whole state dict, on the CPU of the main process; elsewhere an empty one."""
        return waiting.for_whole("get_state_dict", dtensors.gathered_state, model, keep=self.place.is_main_process)

    # What fully_shard does not do

    def _average(self, parameter: torch.Tensor) -> None:
        """Average the gradient of a parameter that is whole on each process, once a window."""
        if self._exchanging and parameter.grad is not None and parameter.grad.numel():
            dist.all_reduce(parameter.grad, group=self.division.group)
            parameter.grad.div_(self.division.place.num_processes)

    # What fully_shard is told

    def _build_mesh(self) -> DeviceMesh:
        """One dimension to shard over, or two: copies, and shards of each."""
        device, world = self.place.device.type, self.place.num_processes
        config = self.setup.parallelism
        if config is not None and self.setup.mesh is not None:
            if not config.dp_shard_enabled and not config.dp_replicate_enabled and not config.cp_enabled:
                return make_mesh(device, (world,), ("dp_shard",))
            if config.cp_enabled:  # each has its part of the sequences, and so gradients of its own
                return part_of_mesh(self.setup.mesh, *config.fsdp_dim_names)
            names = tuple(config.dp_dim_names)
            if names == ("dp_replicate",) and self.plugin.sharding_strategy in ("FULL_SHARD", "SHARD_GRAD_OP"):
                return make_mesh(device, (world,), ("dp_shard",))
            if names == ("dp_replicate",):
                return make_mesh(device, (world, 1), ("dp_replicate", "dp_shard"))
            chosen: DeviceMesh = self.setup.mesh[names]
            return chosen
        shards = world
        if self.plugin.sharding_strategy == "NO_SHARD":
            shards = 1
        elif self.plugin.sharding_strategy.startswith("HYBRID"):
            shards = get_int_from_env(["LOCAL_WORLD_SIZE"], world)
            if world % shards:
                raise ValueError(
                    f"sharding_strategy={self.plugin.sharding_strategy!r} shards within a machine, but {world} "
                    f"processes are not a multiple of the {shards} here: pass "
                    "ParallelismConfig(dp_replicate_size=..., dp_shard_size=...)."
                )
        if shards == world:
            return make_mesh(device, (world,), ("dp_shard",))
        return make_mesh(device, (world // shards, shards), ("dp_replicate", "dp_shard"))

    def _precision_policy(self) -> MixedPrecisionPolicy:
        given = self.plugin.mixed_precision_policy
        if given is None:
            dtype = _DTYPES.get(self.setup.mixed_precision)
            return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32 if dtype is not None else None)
        if isinstance(given, MixedPrecisionPolicy):
            return given
        names = {field.name for field in dataclasses.fields(MixedPrecisionPolicy)}
        fields = dict(given) if isinstance(given, dict) else {n: v for n, v in vars(given).items() if v is not None}
        if not isinstance(given, dict):  # torch's MixedPrecision, of FSDP1: what it leaves out by default is no matter
            fields = {name: value for name, value in fields.items() if name in names or name == "buffer_dtype"}
        unknown = sorted(fields.keys() - names)
        if unknown:
            raise ValueError(f"mixed_precision_policy: {', '.join(unknown)}: allowed are {', '.join(sorted(names))}")
        return MixedPrecisionPolicy(**{name: _dtype(value) for name, value in fields.items()})

    def _offload_policy(self) -> OffloadPolicy:
        if not self.plugin.cpu_offload:
            return OffloadPolicy()
        return CPUOffloadPolicy(pin_memory=has_its_own_memory(self.place.device))


def _groups(model: nn.Module) -> Iterator[Any]:
    """What FSDP2 keeps for each part that is gathered as one."""
    for part in model.modules():
        if isinstance(part, FSDPModule):
            group = part._get_fsdp_state()._fsdp_param_group
            if group is not None:
                yield group


def _unsharded_gradient(parameter: Any) -> torch.Tensor | None:
    unsharded = getattr(parameter, "_unsharded_param", None)  # there after the first forward
    return unsharded.grad if unsharded is not None else None


def _gather_in_methods(model: nn.Module) -> None:
    """Have the public methods that a script's class adds gather the parameters, as forward does, where called alone.

    Only those that must be given something: others, which count parameters, say, are called on one process as well.
    """
    names = {
        name: method
        for kind in reversed(type(model).__mro__)
        if not kind.__module__.startswith("torch.")
        for name, method in vars(kind).items()
    }
    for name, method in names.items():
        if not name.startswith("_") and inspect.isfunction(method) and not hasattr(nn.Module, name):
            own = list(inspect.signature(method).parameters.values())[1:]
            if any(one.default is one.empty and one.kind is not one.VAR_KEYWORD for one in own):
                setattr(model, name, _gathering(model, name))


def _gathering(model: nn.Module, name: str) -> Callable[..., Any]:
    plain = getattr(model, name)
    register_fsdp_forward_method(model, name)
    gathers = getattr(model, name)
    state = model._get_fsdp_state()  # type: ignore[operator]

    @functools.wraps(plain)
    def run(*args: Any, **kwargs: Any) -> Any:
        inside = state._training_state == TrainingState.FORWARD  # forward calls it, which has gathered
        return (plain if inside else gathers)(*args, **kwargs)

    return run


def _dtype(value: Any) -> Any:
    if isinstance(value, str):
        return _DTYPES.get(value) or getattr(torch, value.removeprefix("torch."))
    return value


def _upcast(model: nn.Module, mixed_precision: str) -> None:
    """Under mixed precision the optimizer needs float32: bring parameters of lower types there."""
    if mixed_precision == "no":
        return
    low = [
        parameter
        for parameter in model.parameters()
        if parameter.requires_grad and parameter.dtype in (torch.float16, torch.bfloat16)
    ]
    if low:
        logger.warning(
            "%d parameters of %s are kept in float32: mixed_precision=%r computes in its own type",
            len(low),
            low[0].dtype,
            mixed_precision,
        )
    for parameter in low:
        parameter.data = parameter.data.float()

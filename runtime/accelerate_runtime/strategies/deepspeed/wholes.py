"""The weights of a model that an engine shards, whole: for files that any number of processes, and any strategy,
reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from ...checkpointing.layout import CheckpointError

if TYPE_CHECKING:
    from .engine import EngineModel


def gathered_weights(model: EngineModel, keep: bool, full_precision: bool = False) -> dict[str, Any]:
    """The state dict of the (unwrapped) model, on the CPU. All processes call this; parameters are gathered one at a
    time.

    Args:
        keep: whether this process gets it; others get an empty one.
        full_precision: the numbers that the optimizer works on, in float32, instead of those that forward uses.
    """
    masters = _masters(model) if full_precision else {}
    found: dict[str, Any] = {}
    seen: dict[int, torch.Tensor] = {}
    for name, tensor in named_tensors(model.module):
        if isinstance(tensor, nn.Parameter):
            if id(tensor) not in seen:
                whole = _whole(model, tensor, masters, full_precision)
                seen[id(tensor)] = whole.detach().to("cpu", copy=True) if keep else tensor
            if keep:
                found[name] = seen[id(tensor)]
        elif keep:
            found[name] = tensor.detach()
    return found


def _whole(
    model: EngineModel, parameter: nn.Parameter, masters: dict[int, torch.Tensor], full_precision: bool
) -> torch.Tensor:
    if id(parameter) in masters:
        return masters[id(parameter)]
    if full_precision and model.engine.zero_optimization() and is_stepped(parameter):
        from deepspeed.utils import safe_get_full_fp32_param

        whole: torch.Tensor = safe_get_full_fp32_param(parameter)
        return whole
    if not hasattr(parameter, "ds_id"):
        return parameter
    import deepspeed

    with deepspeed.zero.GatheredParameters([parameter]):
        return parameter.detach().clone()


def is_stepped(parameter: nn.Parameter) -> bool:
    """Whether ZeRO's optimizer has a part of the parameter."""
    return hasattr(parameter, "_z3_optimizer") or hasattr(parameter, "_hp_mapping")


def _masters(model: EngineModel) -> dict[int, torch.Tensor]:
    """Without ZeRO, in half precision: what the optimizer works on, by parameter."""
    optimizer = model.engine.optimizer
    if model.engine.zero_optimization() or not hasattr(optimizer, "fp32_groups"):
        return {}
    groups = zip(optimizer.fp16_groups, optimizer.fp32_groups, strict=True)
    return {id(low): high for lows, highs in groups for low, high in zip(lows, highs, strict=True)}


def named_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters and persistent buffers under the names that a state dict has."""
    for prefix, part in module.named_modules(remove_duplicate=False):
        before = f"{prefix}." if prefix else ""
        for name, parameter in part._parameters.items():
            if parameter is not None:
                yield before + name, parameter
        for name, buffer in part._buffers.items():
            if buffer is not None and name not in part._non_persistent_buffers_set:
                yield before + name, buffer


class WholeModel(nn.Module):
    """Looks like the unsharded model to what reads files; what is loaded is spread. To be used on every process."""

    _engine_model: EngineModel  # not registered: it is no part
    takes_copies = True
    """Tensors of its state dict are there to be read into, and must then be loaded."""

    def __init__(self, model: EngineModel) -> None:
        super().__init__()
        self.__dict__["_engine_model"] = model

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:  # type: ignore[override]
        """Empty tensors of the right names and shapes; tied ones are the same."""
        made: dict[int, torch.Tensor] = {}
        found = {}
        for name, tensor in named_tensors(self._engine_model.module):
            if id(tensor) not in made:
                shape = getattr(tensor, "ds_shape", tensor.shape)
                kind = torch.float32 if isinstance(tensor, nn.Parameter) else tensor.dtype
                made[id(tensor)] = torch.empty(shape, dtype=kind)
            found[name] = made[id(tensor)]
        return found

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Take this process's part.

        Raises:
            RuntimeError: names or shapes are not the model's.
        """
        named, masters = dict(named_tensors(self._engine_model.module)), _masters(self._engine_model)
        missing, foreign = sorted(named.keys() - state_dict.keys()), sorted(state_dict.keys() - named.keys())
        if strict and (missing or foreign):
            raise RuntimeError(f"missing are {missing}, and not its own {foreign}")
        for name, tensor in named.items():
            value = state_dict.get(name)
            if value is None:
                continue
            shape = tuple(getattr(tensor, "ds_shape", tensor.shape))
            if tuple(value.shape) != shape:
                raise RuntimeError(f"{name} has shape {tuple(value.shape)} there, {shape} here")
            _set(self._engine_model, tensor, value, masters)
        self._engine_model.discard()  # gradients of other weights
        return nn.modules.module._IncompatibleKeys(missing, foreign)


def _set(model: EngineModel, tensor: torch.Tensor, value: torch.Tensor, masters: dict[int, torch.Tensor]) -> None:
    if hasattr(tensor, "ds_id"):
        import deepspeed

        with deepspeed.zero.GatheredParameters([tensor], modifier_rank=0):
            if dist.get_rank() == 0:
                tensor.data.copy_(value)
    else:
        tensor.data.copy_(value)
    if id(tensor) in masters:
        masters[id(tensor)].data.copy_(value)
    elif isinstance(tensor, nn.Parameter) and model.engine.zero_optimization() and is_stepped(tensor):
        set_part(tensor, value)


def set_part(parameter: Any, value: torch.Tensor, state: str | None = None) -> None:
    """Put this process's part of `value` into what ZeRO's optimizer works on.

    Args:
        state: into this state of the optimizer instead ("exp_avg").
    """
    from deepspeed import utils

    value = value.to(torch.float32)
    if not hasattr(parameter, "ds_id"):
        if state is None:
            utils.safe_set_full_fp32_param(parameter, value)
        else:
            utils.safe_set_full_optimizer_state(parameter, value, state)
        return
    size = parameter.ds_tensor.numel()  # with padding, where elements do not go round
    first = size * parameter._z3_optimizer._get_param_partition_rank(parameter)
    part = torch.zeros(size)
    mine = value.flatten()[first : first + size]
    part[: mine.numel()] = mine
    if state is None:
        utils.safe_set_local_fp32_param(parameter, part)
    else:
        utils.safe_set_local_optimizer_state(parameter, part, state)


def refuse_disks(model: EngineModel) -> None:
    """Refuse to gather what waits on a disk.

    Raises:
        CheckpointError: optimizer states or parameters are offloaded to NVMe.
    """
    config = model.engine._config.zero_config
    for what in ("optimizer", "param"):
        offload = getattr(config, f"offload_{what}", None)
        if offload is not None and str(getattr(offload.device, "value", offload.device)) == "nvme":
            raise CheckpointError(
                f"offload_{what}_device='nvme': states on a disk are not gathered here; use DeepSpeed's own "
                "model.engine.save_checkpoint() and load_checkpoint()"
            )

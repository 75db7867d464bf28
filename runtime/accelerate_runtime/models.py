"""Models inside what wraps them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import nn

from .compilation import is_compiled_module, recompiled
from .precision import unwrap_forward

Unwrap = Callable[[nn.Module], nn.Module]


def extract_model_from_parallel(
    model: nn.Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True, recursive: bool = False
) -> nn.Module:
    """The model inside DistributedDataParallel, DataParallel, FSDP or a DeepSpeed engine; another one as it is.

    Args:
        keep_fp32_wrapper: False also takes autocast off its forward, in place.
        keep_torch_compile: False also takes `torch.compile`'s wrapper off. True gives a wrapper of its own, where
            `model` has one (Accelerate changes the one that is being trained).
        recursive: also take wrappers off parts of the model, in place.
    """
    inner = unwrap(model, out_of_wrappers, keep_fp32_wrapper, keep_torch_compile)
    if recursive:
        _unwrap_parts(_out_of_compiled(inner))
    return inner


def unwrap(model: nn.Module, out_of: Unwrap, keep_autocast: bool, keep_compiled: bool) -> nn.Module:
    """`extract_model_from_parallel`, where `out_of` takes off what an engine has put around the model."""
    inner = out_of(_out_of_compiled(model))
    if not keep_compiled:
        inner = _out_of_compiled(inner)
    if not keep_autocast:
        unwrap_forward(inner)
    if not keep_compiled or not is_compiled_module(model):
        return inner
    return model if _out_of_compiled(model) is inner else recompiled(model, inner)


def out_of_wrappers(model: nn.Module) -> nn.Module:
    """The model inside wrappers that hold it at `.module`: torch's own, and those of engines that were imported."""
    kinds: tuple[type[Any], ...] = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    for module, name in (
        ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"),
        ("deepspeed", "DeepSpeedEngine"),
    ):
        if module in sys.modules and hasattr(sys.modules[module], name):
            kinds += (getattr(sys.modules[module], name),)
    while isinstance(model, kinds):
        model = model.module
    return model


def _out_of_compiled(model: nn.Module) -> nn.Module:
    if not is_compiled_module(model):
        return model
    inner: nn.Module = model._orig_mod  # type: ignore[assignment]
    return inner


def _unwrap_parts(model: nn.Module) -> None:
    for name, child in list(model.named_children()):
        inner = out_of_wrappers(child)
        if inner is not child:
            setattr(model, name, inner)
        _unwrap_parts(inner)


def has_device_map(model: nn.Module) -> bool:
    """Whether a library has spread the model's parts over several devices (`device_map="auto"`)."""
    return any(len(getattr(part, "hf_device_map", None) or ()) > 1 for part in model.modules())

"""Compiling models in place: they keep their class, their identity and the names in their state dict."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import torch
from torch import nn

from .plugins import TorchDynamoPlugin

M = TypeVar("M", bound=nn.Module)


def compile_model(model: nn.Module, plugin: TorchDynamoPlugin) -> None:
    """Have `model` compiled at its first call, as `plugin` says, in place. One that is compiled already stays so."""
    if not plugin.compiles or is_compiled(model):
        return
    if plugin.use_regional_compilation:
        compile_regions(model, **plugin.to_kwargs())
    else:
        _compile_call(model, plugin.to_kwargs())


def compile_regions(module: M, **compile_kwargs: Any) -> M:
    """Have blocks that repeat compiled one by one, and the rest of the model apart from them: it starts faster.

    Blocks repeat in an `nn.ModuleList` whose items are of one class. It is done in place, so that names in the state
    dict do not change (Accelerate makes a copy whose names do).

    Args:
        compile_kwargs: arguments of `torch.compile`.

    Returns:
        `module`.
    """
    if repeats(module):
        for block in module.children():
            _compile_call(block, compile_kwargs)
    elif any(repeats(part) for part in module.modules()):
        for child in module.children():
            compile_regions(child, **compile_kwargs)
    else:
        _compile_call(module, compile_kwargs)
    return module


def _compile_call(module: nn.Module, arguments: dict[str, Any]) -> None:
    """`module.compile(**arguments)`, which compiles nothing of a module whose class is torch's own (nn.Sequential)."""
    if not type(module).__module__.startswith("torch."):
        module.compile(**arguments)  # knows that FSDP's hooks stay out of the graph
        return
    compiled = torch.compile(_call, **arguments)
    module._compiled_call_impl = functools.partial(compiled, module)


def _call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    # the module is an argument, so that blocks alike share what is compiled
    return module._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]


def is_compiled_module(module: nn.Module) -> bool:
    """Whether this is the wrapper that `torch.compile` returns (it has the model at `._orig_mod`).

    False for what `prepare` compiled, which has no wrapper.
    """
    # not isinstance(): torch._dynamo takes long to import, and whoever has a compiled model has imported it
    return any(kind.__name__ == "OptimizedModule" for kind in type(module).__mro__) and hasattr(module, "_orig_mod")


def has_compiled_regions(module: nn.Module) -> bool:
    """Whether some part of the model is compiled."""
    return any(is_compiled(part) for part in module.modules())


def is_compiled(module: nn.Module) -> bool:
    """Whether a call of this module is compiled, in place or by a wrapper."""
    return module._compiled_call_impl is not None or is_compiled_module(module)


def recompiled(wrapper: nn.Module, inner: nn.Module) -> nn.Module:
    """A wrapper like `wrapper` around another model. Nothing is compiled before it is called."""
    return type(wrapper)(inner, wrapper.dynamo_ctx)


def repeats(module: nn.Module) -> bool:
    blocks = list(module.children()) if isinstance(module, nn.ModuleList) else []
    return bool(blocks) and all(isinstance(block, type(blocks[0])) for block in blocks)

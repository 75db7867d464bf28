"""Weights that FSDP gathers in 8 bits (torchao's float8 all-gather): a quarter of what float32 sends.

Source: the design of https://github.com/pytorch/ao/tree/main/torchao/float8
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor


def gather_in_8_bits(part: nn.Module, ignored: set[nn.Parameter]) -> None:
    """Have FSDP, which is to shard `part` next, gather the weights of its layers of fp8 in 8 bits, where their recipe
    says so. The layers get new parameters, which share the memory of those they had.

    Args:
        ignored: parameters that are not sharded. They stay what they are, and so do those that several modules share.
    """
    layers = list(_layers(part))
    if not layers:
        return
    held = Counter(id(one) for module in part.modules() for one in module.parameters(recurse=False))
    for layer in layers:
        whole = not isinstance(layer.weight, DTensor) and not _holds(layer.weight)
        if whole and layer.weight not in ignored and held[id(layer.weight)] == 1:
            config = layer.config.cast_config_weight
            cast = _casting()(layer.weight.detach(), layer.linear_mm_config, config.target_dtype)
            layer.weight = nn.Parameter(cast, layer.weight.requires_grad)


def scale_at_once(model: nn.Module) -> None:
    """Have the scales of all weights of `model`, which is sharded, computed by one exchange before a forward that finds
    weights changed (by a step, or by loading), rather than one by one; and its state dict have plain tensors."""
    sharded = [layer for layer in _layers(model) if isinstance(layer.weight, DTensor)]
    layers = [layer for layer in sharded if _holds(layer.weight._local_tensor)]
    if not layers:
        return
    seen: dict[int, int] = {}

    @torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
    def scale(*_: Any) -> None:
        # a weight that is still gathered is no DTensor, and is not gathered again
        now = {n: _changes(layer.weight) for n, layer in enumerate(layers) if isinstance(layer.weight, DTensor)}
        if not now.items() <= seen.items():
            seen.update(now)
            sys.modules["torchao.float8"].precompute_float8_dynamic_scale_for_fsdp(model)

    def plain(_: nn.Module, state: dict[str, Any], prefix: str, __: Any) -> None:
        for name, value in state.items():
            if name.startswith(prefix) and isinstance(value, DTensor) and _holds(value._local_tensor):
                state[name] = _without_cast(value)

    model.register_forward_pre_hook(scale, prepend=True)
    model.register_state_dict_post_hook(plain)  # type: ignore[no-untyped-call]


def _layers(model: nn.Module) -> Iterator[Any]:
    """The layers that torchao has converted, and whose recipe wants this."""
    if "torchao.float8" not in sys.modules:
        return
    from torchao.float8.float8_linear import Float8Linear

    for module in model.modules():
        if isinstance(module, Float8Linear) and module.config.enable_fsdp_float8_all_gather:
            yield module


def _casting() -> Any:
    from torchao.float8.fsdp_utils import WeightWithDynamicFloat8CastTensor

    return WeightWithDynamicFloat8CastTensor


def _holds(tensor: torch.Tensor) -> bool:
    """Whether it is a tensor of 32 bits that is gathered in 8."""
    return isinstance(tensor, _casting())


def _changes(weight: Any) -> int:
    """Grows whenever the weight is changed in place, at whatever layer of wrappers."""
    local = weight._local_tensor
    return int(weight._version + local._version + local._tensor._version)


def _without_cast(weight: Any) -> DTensor:
    """The same numbers, in the same memory, as a DTensor that files may have."""
    return DTensor.from_local(
        weight._local_tensor._tensor,
        weight.device_mesh,
        weight.placements,
        run_check=False,
        shape=weight.shape,
        stride=weight.stride(),
    )

"""fp8 by torchao's float8 training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..devices import multiplies_in_8_bits
from ..plugins import FP8BackendType
from ..plugins.fp8 import AORecipeKwargs
from .fp8 import Engine


class TorchAO(Engine):
    """Linear layers that cast their inputs, weights and gradients to 8 bits as they multiply them."""

    backend = FP8BackendType.AO

    def __init__(self, recipe: AORecipeKwargs, device: torch.device) -> None:
        try:
            import torchao.float8  # noqa: F401
        except ImportError as error:
            raise ImportError(f"fp8 by torchao cannot be used ({error}): pip install torchao") from error
        self.recipe, self.device = recipe, device

    def convert(self, model: nn.Module) -> nn.Module:
        from torchao.float8 import convert_to_float8_training

        wanted = self.recipe.module_filter_func or all_but_first_and_last(model)
        config = self._config()
        # whether weights are gathered in 8 bits is for FSDP to do, as it shards them; elsewhere they stay what they are
        plain = dataclasses.replace(config, enable_fsdp_float8_all_gather=False)
        converted: nn.Module = convert_to_float8_training(model, config=plain, module_filter_fn=wanted)
        for module in converted.modules():
            if getattr(module, "config", None) is plain:
                module.config = config
        return converted

    def _config(self) -> Any:
        from torchao.float8 import Float8LinearConfig

        config = self.recipe.config
        if config is None:
            config = Float8LinearConfig(
                enable_fsdp_float8_all_gather=bool(self.recipe.enable_fsdp_float8_all_gather),
                pad_inner_dim=bool(self.recipe.pad_inner_dim),
                emulate=not multiplies_in_8_bits(self.device),
            )
        return config


def all_but_first_and_last(model: nn.Module) -> Callable[[nn.Module, str], bool]:
    """Whether a module is one of `model`'s linear layers, but neither its first nor its last, of sizes that fit."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    kept = {*linear[:1], *linear[-1:]}

    def wanted(module: nn.Module, name: str) -> bool:
        if not isinstance(module, nn.Linear) or name in kept:
            return False
        return module.in_features % 16 == 0 and module.out_features % 16 == 0

    return wanted


def has_ao_layers(model: nn.Module) -> bool:
    """Whether torchao has converted a layer of `model` to fp8."""
    try:
        from torchao.float8.float8_linear import Float8Linear
    except ImportError:
        return False
    return any(isinstance(module, Float8Linear) for module in model.modules())

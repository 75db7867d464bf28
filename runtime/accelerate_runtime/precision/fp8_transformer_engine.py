"""fp8 by NVIDIA's TransformerEngine, which works on GPUs only."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from ..devices import CUDA
from ..plugins import FP8BackendType
from ..plugins.fp8 import TERecipeKwargs
from .fp8 import Engine


class TransformerEngine(Engine):
    """Linear and LayerNorm modules of TransformerEngine, under its autocast."""

    backend = FP8BackendType.TE

    def __init__(self, recipe: TERecipeKwargs, device: torch.device) -> None:
        if device.type != CUDA.name:
            raise ValueError(
                f"fp8 by TransformerEngine needs an NVIDIA GPU, and this process trains on {device.type}: "
                "pass AORecipeKwargs() (pip install torchao), which can emulate it."
            )
        try:
            import transformer_engine.pytorch as engine
            from transformer_engine.common import recipe as recipes
        except (ImportError, OSError) as error:
            raise ImportError(
                f"fp8 by TransformerEngine cannot be used ({error}): "
                'pip install --no-build-isolation "transformer_engine[pytorch]"'
            ) from error
        self._engine = engine
        self._during_eval = bool(recipe.use_autocast_during_eval)
        self._recipe = _recipe_of(recipe, recipes)

    def convert(self, model: nn.Module) -> nn.Module:
        for name, module in list(model.named_modules()):
            ours = self._counterpart(module)
            if ours is not None and name:
                parent, _, own = name.rpartition(".")
                setattr(model.get_submodule(parent), own, ours)
        return model

    def _counterpart(self, module: nn.Module) -> nn.Module | None:
        """TransformerEngine's module for one of torch's, with the same parameters; None if it stays what it is."""
        if type(module) is nn.Linear and all(size % 16 == 0 for size in module.weight.shape):
            new: nn.Module = self._engine.Linear(
                module.in_features,
                module.out_features,
                bias=module.bias is not None,
                params_dtype=module.weight.dtype,
                device=module.weight.device,
            )
        elif type(module) is nn.LayerNorm and module.elementwise_affine and module.bias is not None:
            new = self._engine.LayerNorm(
                module.normalized_shape,
                eps=module.eps,
                params_dtype=module.weight.dtype,
                device=module.weight.device,
            )
        else:
            return None
        for name, parameter in module.named_parameters(recurse=False):
            setattr(new, name, parameter)
        return new.train(module.training)

    def around_forward(self, training: bool) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._engine.fp8_autocast(
            enabled=training or self._during_eval, fp8_recipe=self._recipe
        )
        return context


def _recipe_of(asked: TERecipeKwargs, recipes: Any) -> Any:
    """TransformerEngine's own recipe. What is at TransformerEngine's default is not passed: versions differ."""
    options: dict[str, Any] = {"margin": asked.margin, "fp8_format": getattr(recipes.Format, str(asked.fp8_format))}
    if asked.use_mxfp8_block_scaling:
        return recipes.MXFP8BlockScaling(**options)
    options.update(amax_history_len=asked.amax_history_len, amax_compute_algo=asked.amax_compute_algo)
    if asked.interval != 1:
        options["interval"] = asked.interval
    if any(asked.override_linear_precision or ()):
        options["override_linear_precision"] = asked.override_linear_precision
    return recipes.DelayedScaling(**options)

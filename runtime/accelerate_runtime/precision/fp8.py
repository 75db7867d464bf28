"""Which engine computes in 8 bits. Each has a file of its own here."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from ..requirements import is_installed

if TYPE_CHECKING:
    from ..plugins import FP8BackendType
    from ..plugins.fp8 import AORecipeKwargs, TERecipeKwargs

Recipe: TypeAlias = "AORecipeKwargs | TERecipeKwargs"


class Engine(ABC):
    """An adapter over a library that computes in 8 bits."""

    backend: FP8BackendType

    @abstractmethod
    def convert(self, model: nn.Module) -> nn.Module:
        """`model`, changed in place, its layers computing in 8 bits with the parameters they had (so that an optimizer
        keeps them); a model that is a single layer may come back as another object."""

    def around_forward(self, training: bool) -> AbstractContextManager[Any]:
        """A context for the model's forward, inside of autocast."""
        return nullcontext()


def choose_recipe() -> Recipe:
    """The recipe where a script names none: of the engine that ACCELERATE_FP8_BACKEND names, else of one installed.

    Raises:
        ImportError: none is installed.
        ValueError: the variable names no engine.
    """
    from ..plugins.fp8 import AORecipeKwargs, MSAMPRecipeKwargs, TERecipeKwargs

    name = os.environ.get("ACCELERATE_FP8_BACKEND", "NO").upper()
    if name == "AO" or (name == "NO" and is_installed("torchao")):
        return AORecipeKwargs()
    if name == "TE" or (name == "NO" and is_installed("transformer_engine")):
        return TERecipeKwargs()
    if name == "MSAMP":
        MSAMPRecipeKwargs()  # raises, with the reason
    if name != "NO":
        raise ValueError(f"ACCELERATE_FP8_BACKEND={name!r}: allowed are 'AO', 'TE' and 'NO' (one that is installed)")
    raise ImportError("mixed_precision='fp8' needs an engine, and none is installed: pip install torchao")


def engine_for(recipe: Recipe, device: torch.device) -> Engine:
    """The engine that follows `recipe` on `device`.

    Raises:
        ImportError: it is not installed; the message has the command.
        ValueError: it cannot work on this device.
    """
    from ..plugins.fp8 import AORecipeKwargs

    if isinstance(recipe, AORecipeKwargs):
        from .fp8_torchao import TorchAO

        return TorchAO(recipe, device)
    from .fp8_transformer_engine import TransformerEngine

    return TransformerEngine(recipe, device)

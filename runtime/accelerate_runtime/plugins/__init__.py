"""The configuration objects that a script may pass to Accelerator. Plain dataclasses, without torch."""

from .accumulation import GradientAccumulationPlugin, check_steps
from .base import KwargsHandler, flag_from_env
from .fp8 import AORecipeKwargs, FP8BackendType, MSAMPRecipeKwargs, TERecipeKwargs
from .handlers import AutocastKwargs, DistributedDataParallelKwargs, GradScalerKwargs, InitProcessGroupKwargs
from .loading import DataLoaderConfiguration
from .project import ProjectConfiguration

__all__ = [
    "AORecipeKwargs",
    "AutocastKwargs",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "FP8BackendType",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "KwargsHandler",
    "MSAMPRecipeKwargs",
    "ProjectConfiguration",
    "TERecipeKwargs",
    "check_steps",
    "flag_from_env",
]

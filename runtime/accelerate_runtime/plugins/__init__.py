"""The configuration objects that a script may pass to Accelerator. Plain dataclasses, without torch.

Those of few scripts (`parallelism`) are imported where they are used.
"""

from .accumulation import GradientAccumulationPlugin, check_steps
from .base import KwargsHandler
from .choices import ComputeEnvironment, DynamoBackend, PrecisionType, RNGType
from .compilation import TorchDynamoPlugin
from .fp8 import AORecipeKwargs, FP8BackendType, MSAMPRecipeKwargs, TERecipeKwargs
from .handlers import AutocastKwargs, DistributedDataParallelKwargs, GradScalerKwargs, InitProcessGroupKwargs
from .loading import DataLoaderConfiguration
from .profile import ProfileKwargs
from .project import ProjectConfiguration

__all__ = [
    "AORecipeKwargs",
    "AutocastKwargs",
    "ComputeEnvironment",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DynamoBackend",
    "FP8BackendType",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "KwargsHandler",
    "MSAMPRecipeKwargs",
    "PrecisionType",
    "ProfileKwargs",
    "ProjectConfiguration",
    "RNGType",
    "TERecipeKwargs",
    "TorchDynamoPlugin",
    "check_steps",
]

"""The configuration objects that a script may pass to Accelerator. Plain dataclasses, without torch.

Those of few scripts (`parallelism`) are imported where they are used.
"""

from .accumulation import GradientAccumulationPlugin, check_steps
from .base import KwargsHandler
from .choices import (
    ComputeEnvironment,
    DDPCommunicationHookType,
    DynamoBackend,
    FP8BackendType,
    PrecisionType,
    RNGType,
)
from .compilation import TorchDynamoPlugin
from .handlers import AutocastKwargs, DistributedDataParallelKwargs, GradScalerKwargs, InitProcessGroupKwargs
from .loading import DataLoaderConfiguration
from .project import ProjectConfiguration

__all__ = [
    "AutocastKwargs",
    "ComputeEnvironment",
    "DDPCommunicationHookType",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DynamoBackend",
    "FP8BackendType",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "KwargsHandler",
    "PrecisionType",
    "ProjectConfiguration",
    "RNGType",
    "TorchDynamoPlugin",
    "check_steps",
]

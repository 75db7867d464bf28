"""The configuration objects that a script may pass to Accelerator. Plain dataclasses, without torch."""

from .accumulation import GradientAccumulationPlugin, check_steps
from .base import KwargsHandler, flag_from_env
from .choices import ComputeEnvironment, DynamoBackend, PrecisionType, RNGType
from .compilation import TorchDynamoPlugin
from .handlers import AutocastKwargs, DistributedDataParallelKwargs, GradScalerKwargs, InitProcessGroupKwargs
from .loading import DataLoaderConfiguration
from .parallelism import (
    DeepSpeedSequenceParallelConfig,
    ParallelismConfig,
    TorchContextParallelConfig,
    TorchTensorParallelConfig,
)
from .profile import ProfileKwargs
from .project import ProjectConfiguration

__all__ = [
    "AutocastKwargs",
    "ComputeEnvironment",
    "DataLoaderConfiguration",
    "DeepSpeedSequenceParallelConfig",
    "DistributedDataParallelKwargs",
    "DynamoBackend",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "KwargsHandler",
    "ParallelismConfig",
    "PrecisionType",
    "ProfileKwargs",
    "ProjectConfiguration",
    "RNGType",
    "TorchContextParallelConfig",
    "TorchDynamoPlugin",
    "TorchTensorParallelConfig",
    "check_steps",
    "flag_from_env",
]

"""The configuration objects that a script may pass to Accelerator. Plain dataclasses, without torch."""

from .accumulation import GradientAccumulationPlugin, check_steps
from .base import KwargsHandler, flag_from_env
from .handlers import AutocastKwargs, DistributedDataParallelKwargs, GradScalerKwargs, InitProcessGroupKwargs
from .loading import DataLoaderConfiguration
from .profile import ProfileKwargs
from .project import ProjectConfiguration

__all__ = [
    "AutocastKwargs",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "KwargsHandler",
    "ProfileKwargs",
    "ProjectConfiguration",
    "check_steps",
    "flag_from_env",
]

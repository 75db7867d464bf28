"""The library that migrated training scripts import: one API from one CPU to many nodes.

    from accelerate_runtime import Accelerator

    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

Names are loaded when they are first used, so that the command line answers without importing torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import attach
from .requirements import require_torch, running_as_command

if not running_as_command():
    require_torch()

__version__ = "0.1.0"
"""The version of this package."""

_HOMES = {
    "Accelerator": "accelerator",
    "AutocastKwargs": "plugins",
    "DDPCommunicationHookType": "plugins",
    "DataLoaderConfiguration": "plugins",
    "DeepSpeedPlugin": "plugins.deepspeed",
    "DistributedDataParallelKwargs": "plugins",
    "DistributedType": "topology",
    "FullyShardedDataParallelPlugin": "plugins.fsdp",
    "GradScalerKwargs": "plugins",
    "GradientAccumulationPlugin": "plugins",
    "InitProcessGroupKwargs": "plugins",
    "ParallelismConfig": "plugins.parallelism",
    "PartialState": "state",
    "ProfileKwargs": "plugins.profile",
    "ProjectConfiguration": "plugins",
    "Strategy": "strategies",
    "StrategySetup": "strategies",
    "debug_launcher": "launch.functions",
    "find_executable_batch_size": "memory",
    "is_rich_available": "availability",
    "load_checkpoint_in_model": "checkpointing.shards",
    "notebook_launcher": "launch.functions",
    "prepare_pippy": "inference",
    "register_strategy": "strategies",
    "skip_first_batches": "data",
    "synchronize_rng_states": "random",
}

__getattr__, __dir__, _names = attach(__name__, _HOMES)
__all__ = [*_names, "__version__"]

if TYPE_CHECKING:
    from .accelerator import (
        Accelerator as Accelerator,
    )
    from .availability import (
        is_rich_available as is_rich_available,
    )
    from .checkpointing.shards import (
        load_checkpoint_in_model as load_checkpoint_in_model,
    )
    from .data import (
        skip_first_batches as skip_first_batches,
    )
    from .inference import (
        prepare_pippy as prepare_pippy,
    )
    from .launch.functions import (
        debug_launcher as debug_launcher,
        notebook_launcher as notebook_launcher,
    )
    from .memory import (
        find_executable_batch_size as find_executable_batch_size,
    )
    from .plugins import (
        AutocastKwargs as AutocastKwargs,
        DataLoaderConfiguration as DataLoaderConfiguration,
        DDPCommunicationHookType as DDPCommunicationHookType,
        DistributedDataParallelKwargs as DistributedDataParallelKwargs,
        GradientAccumulationPlugin as GradientAccumulationPlugin,
        GradScalerKwargs as GradScalerKwargs,
        InitProcessGroupKwargs as InitProcessGroupKwargs,
        ProjectConfiguration as ProjectConfiguration,
    )
    from .plugins.deepspeed import (
        DeepSpeedPlugin as DeepSpeedPlugin,
    )
    from .plugins.fsdp import (
        FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin,
    )
    from .plugins.parallelism import (
        ParallelismConfig as ParallelismConfig,
    )
    from .plugins.profile import (
        ProfileKwargs as ProfileKwargs,
    )
    from .random import (
        synchronize_rng_states as synchronize_rng_states,
    )
    from .state import (
        PartialState as PartialState,
    )
    from .strategies import (
        Strategy as Strategy,
        StrategySetup as StrategySetup,
        register_strategy as register_strategy,
    )
    from .topology import (
        DistributedType as DistributedType,
    )

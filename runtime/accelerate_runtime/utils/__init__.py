"""The helpers that scripts import by name. Each lives in the module of its subject; here they are only offered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attach

_HOMES = {
    "AORecipeKwargs": "plugins",
    "AutocastKwargs": "plugins",
    "DataLoaderConfiguration": "plugins",
    "DistributedDataParallelKwargs": "plugins",
    "DistributedType": "topology",
    "FP8BackendType": "plugins",
    "GradScalerKwargs": "plugins",
    "GradientAccumulationPlugin": "plugins",
    "InitProcessGroupKwargs": "plugins",
    "KwargsHandler": "plugins",
    "MSAMPRecipeKwargs": "plugins",
    "ProjectConfiguration": "plugins",
    "TERecipeKwargs": "plugins",
    "broadcast": "collectives",
    "broadcast_object_list": "collectives",
    "concatenate": "collectives",
    "convert_outputs_to_fp32": "precision",
    "convert_to_fp32": "precision",
    "extract_model_from_parallel": "models",
    "find_batch_size": "collectives",
    "gather": "collectives",
    "gather_object": "collectives",
    "has_ao_layers": "precision.fp8_torchao",
    "pad_across_processes": "collectives",
    "reduce": "collectives",
    "save": "files",
    "send_to_device": "collectives",
    "set_seed": "random",
    "synchronize_rng_state": "random",
    "synchronize_rng_states": "random",
    "wait_for_everyone": "collectives",
}

__getattr__, __dir__, __all__ = attach(__name__, _HOMES)

if TYPE_CHECKING:
    from ..collectives import (
        broadcast as broadcast,
        broadcast_object_list as broadcast_object_list,
        concatenate as concatenate,
        find_batch_size as find_batch_size,
        gather as gather,
        gather_object as gather_object,
        pad_across_processes as pad_across_processes,
        reduce as reduce,
        send_to_device as send_to_device,
        wait_for_everyone as wait_for_everyone,
    )
    from ..files import (
        save as save,
    )
    from ..models import (
        extract_model_from_parallel as extract_model_from_parallel,
    )
    from ..plugins import (
        AORecipeKwargs as AORecipeKwargs,
        AutocastKwargs as AutocastKwargs,
        DataLoaderConfiguration as DataLoaderConfiguration,
        DistributedDataParallelKwargs as DistributedDataParallelKwargs,
        FP8BackendType as FP8BackendType,
        GradientAccumulationPlugin as GradientAccumulationPlugin,
        GradScalerKwargs as GradScalerKwargs,
        InitProcessGroupKwargs as InitProcessGroupKwargs,
        KwargsHandler as KwargsHandler,
        MSAMPRecipeKwargs as MSAMPRecipeKwargs,
        ProjectConfiguration as ProjectConfiguration,
        TERecipeKwargs as TERecipeKwargs,
    )
    from ..precision import (
        convert_outputs_to_fp32 as convert_outputs_to_fp32,
        convert_to_fp32 as convert_to_fp32,
    )
    from ..precision.fp8_torchao import (
        has_ao_layers as has_ao_layers,
    )
    from ..random import (
        set_seed as set_seed,
        synchronize_rng_state as synchronize_rng_state,
        synchronize_rng_states as synchronize_rng_states,
    )
    from ..topology import (
        DistributedType as DistributedType,
    )

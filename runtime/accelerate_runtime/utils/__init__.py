"""The helpers that scripts import by name. Each lives in the module of its subject; here they are only offered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attach

_HOMES = {
    "AORecipeKwargs": "plugins.fp8",
    "AutocastKwargs": "plugins",
    "CannotPadNestedTensorWarning": "collectives",
    "ComputeEnvironment": "plugins",
    "DDPCommunicationHookType": "plugins",
    "DataLoaderConfiguration": "plugins",
    "DeepSpeedPlugin": "plugins.deepspeed",
    "DeepSpeedSequenceParallelConfig": "plugins.parallelism",
    "DistributedDataParallelKwargs": "plugins",
    "DistributedOperationException": "collectives",
    "DistributedType": "topology",
    "DummyOptim": "strategies.deepspeed.dummies",
    "DummyScheduler": "strategies.deepspeed.dummies",
    "DynamoBackend": "plugins",
    "FP8BackendType": "plugins",
    "FullyShardedDataParallelPlugin": "plugins.fsdp",
    "MegatronLMPlugin": "plugins.megatron",
    "GradScalerKwargs": "plugins",
    "GradientAccumulationPlugin": "plugins",
    "HfDeepSpeedConfig": "plugins.zero_config",
    "InitProcessGroupKwargs": "plugins",
    "KwargsHandler": "plugins",
    "LoggerType": "tracking.registry",
    "MSAMPRecipeKwargs": "plugins.fp8",
    "MissingProcessError": "waiting",
    "ParallelismConfig": "plugins.parallelism",
    "PrecisionType": "plugins",
    "ProfileKwargs": "plugins.profile",
    "ProjectConfiguration": "plugins",
    "RNGType": "plugins",
    "TERecipeKwargs": "plugins.fp8",
    "TorchContextParallelConfig": "plugins.parallelism",
    "TorchDynamoPlugin": "plugins",
    "TorchPipelineParallelConfig": "plugins.pipeline",
    "TorchTensorParallelConfig": "plugins.parallelism",
    "TorchTensorParallelPlugin": "plugins.parallelism",
    "broadcast": "collectives",
    "broadcast_object_list": "collectives",
    "check_cuda_fp8_capability": "availability",
    "clear_device_cache": "memory",
    "clear_environment": "environment",
    "compare_versions": "versions",
    "compile_regions": "compilation",
    "concatenate": "structures",
    "convert_file_size_to_int": "memory",
    "convert_outputs_to_fp32": "precision",
    "convert_to_fp32": "precision",
    "extract_model_from_parallel": "models",
    "find_batch_size": "structures",
    "find_executable_batch_size": "memory",
    "gather": "collectives",
    "gather_object": "collectives",
    "get_active_deepspeed_plugin": "plugins.deepspeed",
    "get_int_from_env": "environment",
    "get_max_memory": "memory",
    "has_ao_layers": "precision.fp8_torchao",
    "has_compiled_regions": "compilation",
    "honor_type": "structures",
    "is_4bit_bnb_available": "availability",
    "is_8bit_bnb_available": "availability",
    "is_aim_available": "availability",
    "is_amdsmi_available": "availability",
    "is_bf16_available": "availability",
    "is_bitsandbytes_multi_backend_available": "availability",
    "is_bnb_available": "availability",
    "is_boto3_available": "availability",
    "is_clearml_available": "availability",
    "is_comet_ml_available": "availability",
    "is_compiled_module": "compilation",
    "is_cuda_available": "availability",
    "is_datasets_available": "availability",
    "is_deepspeed_available": "availability",
    "is_dvclive_available": "availability",
    "is_fp16_available": "availability",
    "is_fp8_available": "availability",
    "is_habana_gaudi1": "availability",
    "is_hpu_available": "availability",
    "is_import_timer_available": "availability",
    "is_lomo_available": "availability",
    "is_matplotlib_available": "availability",
    "is_megatron_lm_available": "availability",
    "is_mlflow_available": "availability",
    "is_mlu_available": "availability",
    "is_mps_available": "availability",
    "is_msamp_available": "availability",
    "is_musa_available": "availability",
    "is_neuron_available": "availability",
    "is_npu_available": "availability",
    "is_numpy_available": "availability",
    "is_pandas_available": "availability",
    "is_peft_available": "availability",
    "is_pippy_available": "availability",
    "is_pynvml_available": "availability",
    "is_pytest_available": "availability",
    "is_rich_available": "availability",
    "is_rocm_available": "availability",
    "is_sagemaker_available": "availability",
    "is_schedulefree_available": "availability",
    "is_sdaa_available": "availability",
    "is_swanlab_available": "availability",
    "is_tensorboard_available": "availability",
    "is_timm_available": "availability",
    "is_torch_distributed_available": "availability",
    "is_torch_tensor": "structures",
    "is_torch_version": "versions",
    "is_torch_xla_available": "availability",
    "is_torchao_available": "availability",
    "is_torchdata_available": "availability",
    "is_torchdata_stateful_dataloader_available": "availability",
    "is_torchvision_available": "availability",
    "is_tqdm_available": "availability",
    "is_trackio_available": "availability",
    "is_transformer_engine_available": "availability",
    "is_transformer_engine_mxfp8_available": "availability",
    "is_transformers_available": "availability",
    "is_triton_available": "availability",
    "is_wandb_available": "availability",
    "is_weights_only_available": "availability",
    "is_xccl_available": "availability",
    "is_xpu_available": "availability",
    "listify": "structures",
    "load": "files",
    "load_checkpoint_in_model": "checkpointing.shards",
    "merge_fsdp_weights": "checkpointing.merging",
    "override_numa_affinity": "affinity",
    "pad_across_processes": "collectives",
    "parse_choice_from_env": "environment",
    "parse_flag_from_env": "environment",
    "patch_environment": "environment",
    "purge_accelerate_environment": "environment",
    "recursively_apply": "structures",
    "reduce": "collectives",
    "release_memory": "memory",
    "save": "files",
    "send_to_device": "structures",
    "set_numa_affinity": "affinity",
    "set_seed": "random",
    "should_reduce_batch_size": "memory",
    "str_to_bool": "environment",
    "synchronize_rng_state": "random",
    "synchronize_rng_states": "random",
    "tqdm": "progress",
    "wait_for_everyone": "collectives",
    "write_basic_config": "launch.basic",
}

__getattr__, __dir__, __all__ = attach(__name__, _HOMES)

if TYPE_CHECKING:
    from ..affinity import (
        override_numa_affinity as override_numa_affinity,
        set_numa_affinity as set_numa_affinity,
    )
    from ..availability import (
        check_cuda_fp8_capability as check_cuda_fp8_capability,
        is_4bit_bnb_available as is_4bit_bnb_available,
        is_8bit_bnb_available as is_8bit_bnb_available,
        is_aim_available as is_aim_available,
        is_amdsmi_available as is_amdsmi_available,
        is_bf16_available as is_bf16_available,
        is_bitsandbytes_multi_backend_available as is_bitsandbytes_multi_backend_available,
        is_bnb_available as is_bnb_available,
        is_boto3_available as is_boto3_available,
        is_clearml_available as is_clearml_available,
        is_comet_ml_available as is_comet_ml_available,
        is_cuda_available as is_cuda_available,
        is_datasets_available as is_datasets_available,
        is_deepspeed_available as is_deepspeed_available,
        is_dvclive_available as is_dvclive_available,
        is_fp8_available as is_fp8_available,
        is_fp16_available as is_fp16_available,
        is_habana_gaudi1 as is_habana_gaudi1,
        is_hpu_available as is_hpu_available,
        is_import_timer_available as is_import_timer_available,
        is_lomo_available as is_lomo_available,
        is_matplotlib_available as is_matplotlib_available,
        is_megatron_lm_available as is_megatron_lm_available,
        is_mlflow_available as is_mlflow_available,
        is_mlu_available as is_mlu_available,
        is_mps_available as is_mps_available,
        is_msamp_available as is_msamp_available,
        is_musa_available as is_musa_available,
        is_neuron_available as is_neuron_available,
        is_npu_available as is_npu_available,
        is_numpy_available as is_numpy_available,
        is_pandas_available as is_pandas_available,
        is_peft_available as is_peft_available,
        is_pippy_available as is_pippy_available,
        is_pynvml_available as is_pynvml_available,
        is_pytest_available as is_pytest_available,
        is_rich_available as is_rich_available,
        is_rocm_available as is_rocm_available,
        is_sagemaker_available as is_sagemaker_available,
        is_schedulefree_available as is_schedulefree_available,
        is_sdaa_available as is_sdaa_available,
        is_swanlab_available as is_swanlab_available,
        is_tensorboard_available as is_tensorboard_available,
        is_timm_available as is_timm_available,
        is_torch_distributed_available as is_torch_distributed_available,
        is_torch_xla_available as is_torch_xla_available,
        is_torchao_available as is_torchao_available,
        is_torchdata_available as is_torchdata_available,
        is_torchdata_stateful_dataloader_available as is_torchdata_stateful_dataloader_available,
        is_torchvision_available as is_torchvision_available,
        is_tqdm_available as is_tqdm_available,
        is_trackio_available as is_trackio_available,
        is_transformer_engine_available as is_transformer_engine_available,
        is_transformer_engine_mxfp8_available as is_transformer_engine_mxfp8_available,
        is_transformers_available as is_transformers_available,
        is_triton_available as is_triton_available,
        is_wandb_available as is_wandb_available,
        is_weights_only_available as is_weights_only_available,
        is_xccl_available as is_xccl_available,
        is_xpu_available as is_xpu_available,
    )
    from ..checkpointing.merging import (
        merge_fsdp_weights as merge_fsdp_weights,
    )
    from ..checkpointing.shards import (
        load_checkpoint_in_model as load_checkpoint_in_model,
    )
    from ..collectives import (
        CannotPadNestedTensorWarning as CannotPadNestedTensorWarning,
        DistributedOperationException as DistributedOperationException,
        broadcast as broadcast,
        broadcast_object_list as broadcast_object_list,
        gather as gather,
        gather_object as gather_object,
        pad_across_processes as pad_across_processes,
        reduce as reduce,
        wait_for_everyone as wait_for_everyone,
    )
    from ..compilation import (
        compile_regions as compile_regions,
        has_compiled_regions as has_compiled_regions,
        is_compiled_module as is_compiled_module,
    )
    from ..environment import (
        clear_environment as clear_environment,
        get_int_from_env as get_int_from_env,
        parse_choice_from_env as parse_choice_from_env,
        parse_flag_from_env as parse_flag_from_env,
        patch_environment as patch_environment,
        purge_accelerate_environment as purge_accelerate_environment,
        str_to_bool as str_to_bool,
    )
    from ..files import (
        load as load,
        save as save,
    )
    from ..launch.basic import (
        write_basic_config as write_basic_config,
    )
    from ..memory import (
        clear_device_cache as clear_device_cache,
        convert_file_size_to_int as convert_file_size_to_int,
        find_executable_batch_size as find_executable_batch_size,
        get_max_memory as get_max_memory,
        release_memory as release_memory,
        should_reduce_batch_size as should_reduce_batch_size,
    )
    from ..models import (
        extract_model_from_parallel as extract_model_from_parallel,
    )
    from ..plugins import (
        AutocastKwargs as AutocastKwargs,
        ComputeEnvironment as ComputeEnvironment,
        DataLoaderConfiguration as DataLoaderConfiguration,
        DDPCommunicationHookType as DDPCommunicationHookType,
        DistributedDataParallelKwargs as DistributedDataParallelKwargs,
        DynamoBackend as DynamoBackend,
        FP8BackendType as FP8BackendType,
        GradientAccumulationPlugin as GradientAccumulationPlugin,
        GradScalerKwargs as GradScalerKwargs,
        InitProcessGroupKwargs as InitProcessGroupKwargs,
        KwargsHandler as KwargsHandler,
        PrecisionType as PrecisionType,
        ProjectConfiguration as ProjectConfiguration,
        RNGType as RNGType,
        TorchDynamoPlugin as TorchDynamoPlugin,
    )
    from ..plugins.deepspeed import (
        DeepSpeedPlugin as DeepSpeedPlugin,
        get_active_deepspeed_plugin as get_active_deepspeed_plugin,
    )
    from ..plugins.fp8 import (
        AORecipeKwargs as AORecipeKwargs,
        MSAMPRecipeKwargs as MSAMPRecipeKwargs,
        TERecipeKwargs as TERecipeKwargs,
    )
    from ..plugins.fsdp import (
        FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin,
    )
    from ..plugins.megatron import (
        MegatronLMPlugin as MegatronLMPlugin,
    )
    from ..plugins.parallelism import (
        DeepSpeedSequenceParallelConfig as DeepSpeedSequenceParallelConfig,
        ParallelismConfig as ParallelismConfig,
        TorchContextParallelConfig as TorchContextParallelConfig,
        TorchTensorParallelConfig as TorchTensorParallelConfig,
        TorchTensorParallelPlugin as TorchTensorParallelPlugin,
    )
    from ..plugins.pipeline import (
        TorchPipelineParallelConfig as TorchPipelineParallelConfig,
    )
    from ..plugins.profile import (
        ProfileKwargs as ProfileKwargs,
    )
    from ..plugins.zero_config import (
        HfDeepSpeedConfig as HfDeepSpeedConfig,
    )
    from ..precision import (
        convert_outputs_to_fp32 as convert_outputs_to_fp32,
        convert_to_fp32 as convert_to_fp32,
    )
    from ..precision.fp8_torchao import (
        has_ao_layers as has_ao_layers,
    )
    from ..progress import (
        tqdm as tqdm,
    )
    from ..random import (
        set_seed as set_seed,
        synchronize_rng_state as synchronize_rng_state,
        synchronize_rng_states as synchronize_rng_states,
    )
    from ..strategies.deepspeed.dummies import (
        DummyOptim as DummyOptim,
        DummyScheduler as DummyScheduler,
    )
    from ..structures import (
        concatenate as concatenate,
        find_batch_size as find_batch_size,
        honor_type as honor_type,
        is_torch_tensor as is_torch_tensor,
        listify as listify,
        recursively_apply as recursively_apply,
        send_to_device as send_to_device,
    )
    from ..topology import (
        DistributedType as DistributedType,
    )
    from ..tracking.registry import (
        LoggerType as LoggerType,
    )
    from ..versions import (
        compare_versions as compare_versions,
        is_torch_version as is_torch_version,
    )
    from ..waiting import (
        MissingProcessError as MissingProcessError,
    )

"""The engines that a launch config may ask for: their options, and the environment variables that carry these. No torch
here: each plugin reads its own variables, and knows what its values may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .config import ConfigError


@dataclass(frozen=True)
class Engine:
    """An engine beside DistributedDataParallel.

    Attributes:
        name: as in `--use_name`, and in messages.
        section: the key of a config file that has its options.
        prefix: of the options' names on the command line and (where one likes) in the section.
        switch: the environment variable that asks for the engine.
        distributed_type: that of a config file; None where the section alone asks for it.
        options: for each option (without the prefix) its environment variable, and what it is.
        in_files_alone: options that only files have; on the command line they are those of any training.
        check: raises ConfigError where options ask for what is not there.
    """

    name: str
    section: str
    prefix: str
    switch: str
    distributed_type: str | None
    options: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    in_files_alone: frozenset[str] = frozenset()
    check: Callable[[Mapping[str, str]], None] | None = None

    def flag(self, option: str) -> str:
        """The option's name on the command line, without dashes in front."""
        return f"{self.prefix}{option}"

    def read_section(self, raw: Any, source: str) -> dict[str, str]:
        """The options that a config file says, as text.

        Raises:
            ConfigError: it is no section, or has an unknown key.
        """
        if not isinstance(raw, dict):
            raise ConfigError(f"{source}: {self.section} is {raw!r}; it must be keys and values")
        found = {}
        for key, value in raw.items():
            option = str(key).removeprefix(self.prefix)
            if option not in self.options:
                raise ConfigError(
                    f"{source}: {self.section}: unknown key {key}; known are {', '.join(sorted(self.options))}"
                )
            if value is not None:
                found[option] = as_text(value)
        return found

    def environment(self, options: Mapping[str, str]) -> dict[str, str]:
        """What the processes get.

        Raises:
            ConfigError: the options ask for what is not there.
        """
        if self.check is not None:
            self.check(options)
        named = {self.options[name][0]: value for name, value in options.items() if self.options[name][0]}
        return {self.switch: "true"} | named


def as_text(value: Any) -> str:
    """A value of a config file as an environment variable has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _named(prefix: str, options: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {name: (f"{prefix}{name.upper()}", help) for name, help in options.items()}


FSDP = Engine(
    "fsdp",
    "fsdp_config",
    "fsdp_",
    "ACCELERATE_USE_FSDP",
    "FSDP",
    _named(
        "FSDP_",
        {
            "version": "1 or 2; both are run by FSDP2",
            "sharding_strategy": "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2",
            "reshard_after_forward": "true or false: free the gathered parameters after forward",
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP",
            "min_num_params": "parameters of a part, for SIZE_BASED_WRAP",
            "offload_params": "true or false: keep parameters in the main memory",
            "state_dict_type": "SHARDED_STATE_DICT or FULL_STATE_DICT",
            "cpu_ram_efficient_loading": "true or false: only the main process needs the weights",
            "activation_checkpointing": "true or false: compute activations again in backward",
            "activation_checkpointing_offload": "true or false: and keep their inputs in the main memory",
            "backward_prefetch": "of FSDP1: BACKWARD_PRE",
            "forward_prefetch": "of FSDP1: false",
            "use_orig_params": "of FSDP1: true",
            "sync_module_states": "of FSDP1: true",
        },
    )
    | {"transformer_layer_cls_to_wrap": ("FSDP_TRANSFORMER_CLS_TO_WRAP", "classes of parts, with commas between")},
)


def _check_parallelism(options: Mapping[str, str]) -> None:
    if options.get("sp_size", "1") != "1":
        raise ConfigError(
            f"parallelism_config_sp_size {options['sp_size']}: sequence parallelism by DeepSpeed (Ulysses, ALST) is "
            f"not supported in this version. parallelism_config_cp_size {options['sp_size']} splits sequences by "
            "context parallelism, without DeepSpeed; parallelism_config_tp_sequence_parallel, by tensor parallelism"
        )


PARALLELISM = Engine(
    "parallelism_config",
    "parallelism_config",
    "parallelism_config_",
    "ACCELERATE_USE_PARALLELISM_CONFIG",
    None,
    _named(
        "PARALLELISM_CONFIG_",
        {
            "dp_replicate_size": "copies of the model",
            "dp_shard_size": "processes that each copy is sharded over (FSDP)",
            "tp_size": "processes that tensors are split over",
            "tp_sequence_parallel": "true or false: split activations along the sequence between the split layers",
            "tp_loss_parallel": "true or false: leave logits split for the loss",
            "cp_size": "processes that sequences are split over, by context parallelism",
            "cp_backend": "torch",
            "cp_comm_strategy": "allgather or alltoall",
            "pp_size": "stages of a pipeline",
            "pp_schedule": "gpipe, 1f1b or interleaved",
            "pp_num_microbatches": "micro-batches that a batch is cut into",
            "pp_split_points": "the modules that begin the stages but the first, with commas between",
            "pp_at_end": "modules that the last stage uses, with commas between",
            "pp_loss_reduction": "mean or sum: what a loss is that the model makes",
            "pp_stages_per_process": "for interleaved",
            "pp_activation_checkpointing": "true or false: compute activations again in backward",
            "sp_size": "1: sequences split by DeepSpeed are refused; see cp_size",
            "sp_backend": "as above",
            "sp_seq_length": "as above",
            "sp_seq_length_is_variable": "as above",
            "sp_attn_implementation": "as above",
        },
    ),
    check=_check_parallelism,
)


def _check_deepspeed(options: Mapping[str, str]) -> None:
    launcher = options.get("deepspeed_multinode_launcher", "standard")
    others = [name for name in ("deepspeed_hostfile", "deepspeed_inclusion_filter", "deepspeed_exclusion_filter")
              if options.get(name, "none").lower() not in ("none", "")]  # fmt: skip
    if launcher != "standard" or others:
        said = others[0] if others else f"deepspeed_multinode_launcher {launcher}"
        raise ConfigError(
            f"{said}: machines are not started from here. Run `accelerate-runtime launch` on each (--num_machines, "
            "--machine_rank, --main_process_ip, --main_process_port; deepspeed_multinode_launcher standard), or start "
            "the script by DeepSpeed's own launcher with ACCELERATE_USE_DEEPSPEED=true in its .deepspeed_env"
        )


DEEPSPEED = Engine(
    "deepspeed",
    "deepspeed_config",
    "",
    "ACCELERATE_USE_DEEPSPEED",
    "DEEPSPEED",
    _named(
        "ACCELERATE_DEEPSPEED_",
        {
            "zero_stage": "0, 1, 2 or 3: what is sharded (2)",
            "offload_optimizer_device": "none, cpu or nvme: where optimizer states wait",
            "offload_param_device": "none, cpu or nvme: where parameters wait (ZeRO-3)",
            "offload_optimizer_nvme_path": "a folder on the disk, for nvme",
            "offload_param_nvme_path": "a folder on the disk, for nvme",
            "zero3_save_16bit_model": "true or false: for DeepSpeed's own save_16bit_model",
        },
    )
    | {
        "deepspeed_config_file": ("ACCELERATE_DEEPSPEED_CONFIG_FILE", "DeepSpeed's own config, JSON"),
        "zero3_init_flag": (
            "ACCELERATE_DEEPSPEED_ZERO3_INIT",
            "true or false: transformers shards models as it makes them",
        ),
        "gradient_clipping": ("ACCELERATE_GRADIENT_CLIPPING", "the norm to which gradients are clipped"),
        "gradient_accumulation_steps": ("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "micro-batches per optimizer step"),
        "deepspeed_moe_layer_cls_names": (
            "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES",
            "classes of layers that ZeRO-3 gathers as a whole, with commas between",
        ),
        "deepspeed_multinode_launcher": ("", "standard: each machine is started by itself"),
        "deepspeed_hostfile": ("", "refused: machines are not started from here"),
        "deepspeed_inclusion_filter": ("", "refused, as above"),
        "deepspeed_exclusion_filter": ("", "refused, as above"),
    },
    frozenset(["gradient_accumulation_steps"]),
    _check_deepspeed,
)

MEGATRON_LM = Engine(
    "megatron_lm",
    "megatron_lm_config",
    "megatron_lm_",
    "ACCELERATE_USE_MEGATRON_LM",
    "MEGATRON_LM",
    _named(
        "MEGATRON_LM_",
        {
            "engine": "native: torch's own tensor and pipeline parallelism, of any model",
            "tp_degree": "processes that layers are split over (1)",
            "pp_degree": "stages of a pipeline (1)",
            "num_micro_batches": "micro-batches that a batch is cut into, with pp_degree",
            "gradient_clipping": "the norm to which gradients are clipped before each step; 0 for none (1.0)",
            "sequence_parallelism": "true or false: split activations along the sequence, with tp_degree",
            "recompute_activations": "true or false: compute activations again in backward, with pp_degree",
        }
        | dict.fromkeys(
            (
                *("recompute_granularity", "recompute_method", "recompute_num_layers", "use_distributed_optimizer"),
                *("use_custom_fsdp", "use_precision_aware_optimizer", "optimizer_cpu_offload"),
                *("overlap_cpu_optimizer_d2h_h2d", "no_load_optim", "no_save_optim", "eod_mask_loss"),
                *("calculate_per_token_loss", "decoder_last_pipeline_num_layers", "expert_model_parallel_size"),
                *("expert_tensor_parallel_size", "context_parallel_size", "attention_backend", "attention_dropout"),
                *("attention_softmax_in_fp32", "hidden_dropout", "use_rotary_position_embeddings"),
            ),
            "of Megatron-LM's own engine: refused by the native one",
        ),
    ),
)

ENGINES = {engine.name: engine for engine in (FSDP, DEEPSPEED, MEGATRON_LM, PARALLELISM)}


def asked_for(engines: Mapping[str, Mapping[str, str]], distributed_type: str | None) -> dict[str, dict[str, str]]:
    """The engines to use, with their options: those that `distributed_type` names, and those without one.

    Raises:
        ConfigError: there are options of an engine that nobody asks for.
    """
    found = {}
    for name, engine in ENGINES.items():
        if engine.distributed_type is not None and engine.distributed_type == distributed_type:
            found[name] = dict(engines.get(name, {}))
        elif engine.distributed_type is None and name in engines:
            found[name] = dict(engines[name])
        elif engines.get(name):
            first = engine.flag(next(iter(engines[name])))
            raise ConfigError(
                f"{first} has no effect without --use_{name} (distributed_type: {engine.distributed_type})"
            )
    return found

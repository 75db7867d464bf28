"""The options of MegatronLMPlugin that a launcher sets, in environment variables of the names that Accelerate's has."""

from __future__ import annotations

import os
from typing import Any

from ..environment import parse_flag_from_env

PREFIX = "MEGATRON_LM_"

KINDS: dict[str, type] = {
    "engine": str,
    "tp_degree": int,
    "pp_degree": int,
    "num_micro_batches": int,
    "gradient_clipping": float,
    "sequence_parallelism": bool,
    "recompute_activations": bool,
    "recompute_granularity": str,
    "recompute_method": str,
    "recompute_num_layers": int,
    "use_distributed_optimizer": bool,
    "use_custom_fsdp": bool,
    "use_precision_aware_optimizer": bool,
    "optimizer_cpu_offload": bool,
    "overlap_cpu_optimizer_d2h_h2d": bool,
    "no_load_optim": bool,
    "no_save_optim": bool,
    "eod_mask_loss": bool,
    "calculate_per_token_loss": bool,
    "decoder_last_pipeline_num_layers": int,
    "expert_model_parallel_size": int,
    "expert_tensor_parallel_size": int,
    "context_parallel_size": int,
    "attention_backend": str,
    "attention_dropout": float,
    "attention_softmax_in_fp32": bool,
    "hidden_dropout": float,
    "use_rotary_position_embeddings": bool,
}
"""What a launcher may say, and what kind of value it is."""


def of_environment() -> dict[str, Any]:
    """The options that the launcher said. What asks for nothing (no, a size of 1) is left out: launchers say that too.

    Raises:
        ValueError: a variable is of another kind; the message names it.
    """
    found = {name: _read(f"{PREFIX}{name.upper()}", kind) for name, kind in KINDS.items()}
    return {name: value for name, value in found.items() if not asks_for_nothing(name, value)}


def asks_for_nothing(name: str, value: Any) -> bool:
    """Whether a value of an option leaves things as they are."""
    return value is None or (name in KINDS and (value is False or (name.endswith("_size") and value == 1)))


def _read(variable: str, kind: type) -> Any:
    text = os.environ.get(variable)
    if not text:
        return None
    if kind is bool:
        return parse_flag_from_env(variable)
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ValueError(f"environment variable {variable}={text!r} is not {what}") from None

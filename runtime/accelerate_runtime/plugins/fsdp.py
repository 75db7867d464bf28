"""How FSDP shards a model: `Accelerator(fsdp_plugin=...)`, or FSDP_… in the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ..environment import parse_flag_from_env

if TYPE_CHECKING:
    from torch import nn

SHARDING_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
"""In the order of their numbers, from 1, which Accelerate's configs may have in place of the names."""
AUTO_WRAP_POLICIES = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")
STATE_DICT_TYPES = ("FULL_STATE_DICT", "SHARDED_STATE_DICT")

_ENV = "FSDP_"
_OF_FSDP1 = {  # FSDP1's options: the values that FSDP2 does anyhow, and what it has for the others
    "backward_prefetch": (
        ("BACKWARD_PRE", "1"),
        "FSDP2 prefetches as BACKWARD_PRE did; its model has set_modules_to_backward_prefetch() for another order",
    ),
    "forward_prefetch": (
        (False,),
        "FSDP2's model has set_modules_to_forward_prefetch() for it",
    ),
    "use_orig_params": ((True,), "FSDP2 always keeps the original parameters, each sharded by itself"),
    "sync_module_states": ((True,), "weights always start as the main process has them"),
    "limit_all_gathers": ((True,), "FSDP2 always bounds its memory"),
    "state_dict_config": ((), "FSDP2's states are chosen by state_dict_type alone"),
    "optim_state_dict_config": ((), "FSDP2's states are chosen by state_dict_type alone"),
}


@dataclass
class FullyShardedDataParallelPlugin:
    """How parameters, gradients and optimizer states are sharded over the processes, by torch's `fully_shard` (FSDP2).

    A field that is None is read from the environment (FSDP_ and its name in capitals), else it has its default.

    Args:
        fsdp_version: 1 or 2; both are run by FSDP2.
        sharding_strategy: FSDP1's name for what `reshard_after_forward` and the device mesh say: FULL_SHARD;
            SHARD_GRAD_OP (`reshard_after_forward=False`); HYBRID_SHARD and HYBRID_SHARD_ZERO2 (sharded within a
            machine, or over `ParallelismConfig.dp_shard_size`, and copied between); NO_SHARD.
        reshard_after_forward: free the gathered parameters after forward (default), or keep them until backward has
            used them, which takes more memory and communicates less. FSDP1's strategies are taken here, too.
        mixed_precision_policy: a `torch.distributed.fsdp.MixedPrecisionPolicy`, or a dict of its fields; the default
            follows Accelerator(mixed_precision=...): parameters are gathered in that type, gradients are reduced in
            float32.
        auto_wrap_policy: which parts are gathered one at a time: "transformer_based_wrap" (those of the classes
            `transformer_cls_names_to_wrap`, else what the model names in `_no_split_modules`, else the blocks that
            repeat in its nn.ModuleLists), "size_based_wrap" (`min_num_params`), "no_wrap" (the model as a whole, the
            default), or a function of `torch.distributed.fsdp.wrap`.
        cpu_offload: keep parameters, gradients and optimizer states in the main memory.
        ignored_modules: parts that stay whole on each process; their gradients are not exchanged.
        state_dict_type: how `save_state` writes: "SHARDED_STATE_DICT" (each process its part, the default) or
            "FULL_STATE_DICT" (one file).
        param_init_fn: called with each part that is on the meta device, once it has memory; by default its
            `reset_parameters`.
        cpu_ram_efficient_loading: only the main process needs the weights; the others may have any, or the model on
            the meta device.
        activation_checkpointing: compute the wrapped parts' activations again in backward instead of keeping them.
        activation_checkpointing_offload: and keep their inputs in the main memory.
        transformer_cls_names_to_wrap: class names, in a list or with commas between them.
        min_num_params: of a part, for "size_based_wrap".
        backward_prefetch, forward_prefetch, use_orig_params, sync_module_states, limit_all_gathers: of FSDP1. What
            FSDP2 does anyhow is taken, the rest is refused.
        state_dict_config, optim_state_dict_config: of FSDP1; refused.

    Raises:
        ValueError: a value that is none of these; the message says what FSDP2 has instead.
    """

    fsdp_version: int = None  # type: ignore[assignment]
    sharding_strategy: Any = None
    reshard_after_forward: Any = None
    backward_prefetch: Any = None
    mixed_precision_policy: Any = None
    auto_wrap_policy: Any = None
    cpu_offload: Any = None
    ignored_modules: Iterable[nn.Module] | str | None = None
    state_dict_type: Any = None
    state_dict_config: Any = None
    optim_state_dict_config: Any = None
    limit_all_gathers: bool = True
    use_orig_params: bool | None = None
    param_init_fn: Callable[[nn.Module], None] | None = None
    sync_module_states: bool | None = None
    forward_prefetch: bool | None = None
    activation_checkpointing: bool = None  # type: ignore[assignment]
    activation_checkpointing_offload: bool = None  # type: ignore[assignment]
    cpu_ram_efficient_loading: bool = None  # type: ignore[assignment]
    transformer_cls_names_to_wrap: list[str] = None  # type: ignore[assignment]
    min_num_params: int = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.fsdp_version = _number("fsdp_version", self._read("fsdp_version", "VERSION", 2))
        if self.fsdp_version not in (1, 2):
            raise ValueError(f"fsdp_version={self.fsdp_version}: allowed are 1 and 2, both run by FSDP2")
        self._read_sharding()
        self._refuse_fsdp1()
        self.cpu_offload = self._flag("cpu_offload", "OFFLOAD_PARAMS", False)
        for name in ("activation_checkpointing", "activation_checkpointing_offload", "cpu_ram_efficient_loading"):
            setattr(self, name, self._flag(name, name.upper(), False))
        kind = self._read("state_dict_type", "STATE_DICT_TYPE", "SHARDED_STATE_DICT")
        self.state_dict_type = _name_of(kind)
        if self.state_dict_type not in STATE_DICT_TYPES:
            raise ValueError(f"state_dict_type={kind!r}: FSDP2 has {' and '.join(STATE_DICT_TYPES)}")
        self._read_wrapping()
        if self.ignored_modules is None:
            self.ignored_modules = os.environ.get(_ENV + "IGNORED_MODULES") or None

    # Reading

    def _read(self, name: str, variable: str, default: Any) -> Any:
        value = getattr(self, name)
        if value is None:
            value = os.environ.get(_ENV + variable) or default
        return value

    def _flag(self, name: str, variable: str, default: bool) -> bool:
        value = getattr(self, name)
        if value is None:
            return parse_flag_from_env(_ENV + variable, default)
        if not isinstance(value, bool):
            if name == "cpu_offload" and hasattr(value, "offload_params"):  # torch's CPUOffload of FSDP1
                return bool(value.offload_params)
            if name == "cpu_offload" and type(value).__name__ in ("CPUOffloadPolicy", "OffloadPolicy"):
                return type(value).__name__ == "CPUOffloadPolicy"
            raise ValueError(f"{name}={value!r}: must be True or False")
        return value

    def _read_sharding(self) -> None:
        both = self.sharding_strategy is not None and self.reshard_after_forward is not None
        strategy = self._read("sharding_strategy", "SHARDING_STRATEGY", None)
        reshard = self._read("reshard_after_forward", "RESHARD_AFTER_FORWARD", None)
        if isinstance(reshard, str) and reshard.lower() in ("true", "false"):
            reshard = reshard.lower() == "true"
        if reshard is not None and not isinstance(reshard, bool):  # one of FSDP1's strategies
            strategy, reshard = strategy if strategy is not None else reshard, None
        name = None if strategy is None else _name_of(strategy)
        if name is not None and name.isdigit() and 1 <= int(name) <= len(SHARDING_STRATEGIES):
            name = SHARDING_STRATEGIES[int(name) - 1]
        if name is not None and name.lstrip("_") not in SHARDING_STRATEGIES:
            raise ValueError(f"sharding_strategy={strategy!r}: allowed are {', '.join(SHARDING_STRATEGIES)}")
        self.sharding_strategy = "FULL_SHARD" if name is None else name.lstrip("_")
        implied = self.sharding_strategy in ("FULL_SHARD", "HYBRID_SHARD")
        if both and reshard is not None and reshard != implied and self.sharding_strategy != "NO_SHARD":
            raise ValueError(
                f"reshard_after_forward={reshard} and sharding_strategy={self.sharding_strategy!r} contradict each "
                "other; FSDP2 asks for reshard_after_forward alone."
            )
        self.reshard_after_forward = implied if reshard is None else reshard

    def _refuse_fsdp1(self) -> None:
        for name, (same, instead) in _OF_FSDP1.items():
            value = getattr(self, name)
            if value is None:
                value = os.environ.get(_ENV + name.upper()) or None
            text = None if value is None else _name_of(value)
            allowed = [str(one).upper() for one in same]
            if text is not None and text not in allowed:
                raise ValueError(f"FullyShardedDataParallelPlugin({name}={value!r}) is an option of FSDP1: {instead}.")

    def _read_wrapping(self) -> None:
        policy = self._read("auto_wrap_policy", "AUTO_WRAP_POLICY", "NO_WRAP")
        if not callable(policy):
            name = _name_of(policy)
            if name not in AUTO_WRAP_POLICIES:
                allowed = ", ".join(repr(one.lower()) for one in AUTO_WRAP_POLICIES)
                raise ValueError(f"auto_wrap_policy={policy!r}: allowed are {allowed}, or a function")
            policy = name
        self.auto_wrap_policy = policy
        names = self._read("transformer_cls_names_to_wrap", "TRANSFORMER_CLS_TO_WRAP", None)
        if isinstance(names, str):
            names = [name.strip() for name in names.split(",") if name.strip()]
        self.transformer_cls_names_to_wrap = names
        self.min_num_params = _number("min_num_params", self._read("min_num_params", "MIN_NUM_PARAMS", 100_000_000))

    # What Accelerate's plugin has as methods

    def set_state_dict_type(self, state_dict_type: Any = None) -> None:
        """Have states written as "FULL_STATE_DICT" or "SHARDED_STATE_DICT" from now on."""
        name = _name_of(state_dict_type if state_dict_type is not None else self.state_dict_type)
        if name not in STATE_DICT_TYPES:
            raise ValueError(f"state_dict_type={state_dict_type!r}: FSDP2 has {' and '.join(STATE_DICT_TYPES)}")
        self.state_dict_type = name

    def set_mixed_precision(self, mixed_precision: str, buffer_autocast: bool = False, override: bool = False) -> None:
        """Gather parameters in another type, unless there is a policy already.

        Args:
            mixed_precision: "fp16", "bf16" or "no".
            override: also where there is one.
        """
        if buffer_autocast:
            raise ValueError("set_mixed_precision(buffer_autocast=True) is of FSDP1: FSDP2 leaves buffers as they are")
        if self.mixed_precision_policy is None or override:
            self.mixed_precision_policy = {} if mixed_precision == "no" else {"param_dtype": mixed_precision}

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _name_of(value: Any) -> str:
    """A value's name in capitals: of a string, or of a member of one of torch's enumerations."""
    return str(getattr(value, "name", value)).upper()


def _number(name: str, value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdigit():
        raise ValueError(f"{name}={value!r}: must be a whole number")
    return int(text)

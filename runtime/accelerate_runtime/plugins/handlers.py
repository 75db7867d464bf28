"""Arguments that are handed on to objects of torch (`kwargs_handlers`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ..devices import CUDA
from .base import KwargsHandler
from .choices import DDPCommunicationHookType

_OF_HOOKS = ("comm_hook", "comm_wrapper", "comm_state_option")


@dataclass
class DistributedDataParallelKwargs(KwargsHandler):
    """Arguments of `torch.nn.parallel.DistributedDataParallel`, and in what form it exchanges gradients.

    Args:
        comm_hook: "no" (as they are), "fp16", "bf16" (cast for the exchange alone), or "power_sgd" (products of small
            matrices, after some steps as they are; approximate). A string or a DDPCommunicationHookType.
        comm_wrapper: "fp16" or "bf16": the type that `comm_hook` is given gradients in. For "power_sgd".
        comm_state_option: arguments of torch's `PowerSGDState`, but for `process_group`.

    Raises:
        ValueError: a name that is none of these, or an option that its hook does not read (Accelerate passes it over).
        NotImplementedError: "batched_power_sgd", which torch cannot run.
    """

    dim: int = 0
    broadcast_buffers: bool = True
    bucket_cap_mb: int = 25
    find_unused_parameters: bool = False
    check_reduction: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    comm_hook: DDPCommunicationHookType | str = DDPCommunicationHookType.NO
    comm_wrapper: DDPCommunicationHookType | str = DDPCommunicationHookType.NO
    comm_state_option: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.comm_hook = _hook_type("comm_hook", self.comm_hook, list(DDPCommunicationHookType))
        wrappers = [DDPCommunicationHookType.NO, DDPCommunicationHookType.FP16, DDPCommunicationHookType.BF16]
        self.comm_wrapper = _hook_type("comm_wrapper", self.comm_wrapper, wrappers)
        if self.comm_hook is DDPCommunicationHookType.BATCHED_POWER_SGD:
            raise NotImplementedError(
                "DistributedDataParallelKwargs(comm_hook='batched_power_sgd'): torch's hook of that name fails with an "
                "AssertionError in its first step of compression; pass comm_hook='power_sgd'."
            )
        if self.comm_wrapper is not DDPCommunicationHookType.NO and self.comm_hook is DDPCommunicationHookType.NO:
            raise ValueError(
                f"DistributedDataParallelKwargs(comm_wrapper='{self.comm_wrapper}') wraps a hook, and there is none: "
                f"pass comm_hook='{self.comm_wrapper}' instead."
            )
        if self.comm_state_option and self.comm_hook is not DDPCommunicationHookType.POWER_SGD:
            raise ValueError(
                f"DistributedDataParallelKwargs(comm_state_option={self.comm_state_option!r}) is of "
                f"comm_hook='power_sgd', not of '{self.comm_hook}'."
            )

    def to_dict(self, ignore_keys: Iterable[str] = _OF_HOOKS) -> dict[str, Any]:
        """The fields that are not in `ignore_keys`: by default those that `DistributedDataParallel` takes."""
        return {name: value for name, value in super().to_dict().items() if name not in ignore_keys}

    def to_kwargs(self) -> dict[str, Any]:
        """The arguments of `DistributedDataParallel` that differ from their default."""
        return {name: value for name, value in super().to_kwargs().items() if name not in _OF_HOOKS}

    def register_comm_hook(self, model: Any) -> None:
        """Have a `DistributedDataParallel` exchange its gradients as `comm_hook` says; `prepare` does it."""
        from ..strategies.comm_hooks import register

        register(model, self)


def _hook_type(name: str, value: Any, allowed: list[DDPCommunicationHookType]) -> DDPCommunicationHookType:
    for one in allowed:
        if value in (one, one.value):
            return one
    names = ", ".join(repr(one.value) for one in allowed)
    raise ValueError(f"DistributedDataParallelKwargs({name}={value!r}): allowed are {names}")


@dataclass
class GradScalerKwargs(KwargsHandler):
    """Arguments of `torch.amp.GradScaler`, used with `mixed_precision="fp16"`."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    enabled: bool = True


@dataclass
class AutocastKwargs(KwargsHandler):
    """How mixed precision is applied.

    Args:
        enabled, cache_enabled: arguments of `torch.autocast`.
        keep_output_dtype: a prepared model returns its outputs in the type that autocast gave them, which saves memory.
            By default float16 and bfloat16 outputs are cast to float32. Not in Accelerate, which always casts.
    """

    enabled: bool = True
    cache_enabled: bool | None = None
    keep_output_dtype: bool = False

    def to_kwargs(self) -> dict[str, Any]:
        """The arguments of `torch.autocast` that differ from their default."""
        return {name: value for name, value in super().to_kwargs().items() if name != "keep_output_dtype"}


@dataclass
class InitProcessGroupKwargs(KwargsHandler):
    """Arguments of `torch.distributed.init_process_group`.

    The default backend, "nccl", means the one that fits the device (gloo on CPU). `timeout` is a timedelta; None is
    torch's own default (30 minutes for gloo).
    """

    backend: str | None = CUDA.backend
    init_method: str | None = None
    timeout: timedelta | None = None

    def __post_init__(self) -> None:
        if self.timeout is not None and not isinstance(self.timeout, timedelta):
            raise TypeError(f"InitProcessGroupKwargs(timeout={self.timeout!r}): pass a datetime.timedelta")

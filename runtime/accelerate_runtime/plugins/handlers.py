"""Arguments that are handed on to objects of torch (`kwargs_handlers`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .base import KwargsHandler


@dataclass
class DistributedDataParallelKwargs(KwargsHandler):
    """Arguments of `torch.nn.parallel.DistributedDataParallel`."""

    dim: int = 0
    broadcast_buffers: bool = True
    bucket_cap_mb: int = 25
    find_unused_parameters: bool = False
    check_reduction: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False


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

    backend: str | None = "nccl"
    init_method: str | None = None
    timeout: timedelta | None = None

    def __post_init__(self) -> None:
        if self.timeout is not None and not isinstance(self.timeout, timedelta):
            raise TypeError(f"InitProcessGroupKwargs(timeout={self.timeout!r}): pass a datetime.timedelta")

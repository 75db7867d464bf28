"""In what form DistributedDataParallel exchanges gradients: torch's hooks, chosen by DistributedDataParallelKwargs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from ..plugins import DDPCommunicationHookType, DistributedDataParallelKwargs

Hook = Callable[[Any, Any], Any]


def check(handler: DistributedDataParallelKwargs, mixed_precision: str) -> None:
    """Refuse what cannot go together.

    Raises:
        ValueError: PowerSGD under fp16: it adds to each step what it left out before, infinite gradients as well.
    """
    if handler.comm_hook is DDPCommunicationHookType.POWER_SGD and mixed_precision == "fp16":
        raise ValueError(
            "DistributedDataParallelKwargs(comm_hook='power_sgd') and mixed_precision='fp16': a step whose gradients "
            "overflow would stay in PowerSGD's memory and spoil all that follow; use mixed_precision='bf16'."
        )


def register(model: DistributedDataParallel, handler: DistributedDataParallelKwargs) -> None:
    """Have `model` exchange its gradients as `handler.comm_hook` and `handler.comm_wrapper` say.

    Raises:
        TypeError: torch's PowerSGDState does not know an argument in `comm_state_option`.
    """
    if handler.comm_hook is DDPCommunicationHookType.NO:
        return
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    state: Any = None
    hook: Hook
    if handler.comm_hook is DDPCommunicationHookType.POWER_SGD:
        state = powerSGD_hook.PowerSGDState(None, **handler.comm_state_option)
        hook = powerSGD_hook.powerSGD_hook
    elif handler.comm_hook is DDPCommunicationHookType.FP16:
        hook = default_hooks.fp16_compress_hook
    else:
        hook = default_hooks.bf16_compress_hook
    if handler.comm_wrapper is DDPCommunicationHookType.FP16:
        hook = default_hooks.fp16_compress_wrapper(hook)
    elif handler.comm_wrapper is DDPCommunicationHookType.BF16:
        hook = default_hooks.bf16_compress_wrapper(hook)
    if model.device_type == "cpu":
        hook = _of_any_backend(hook)
    model.register_comm_hook(state, hook)


def _of_any_backend(hook: Hook) -> Hook:
    """`hook` under another name: torch refuses those of bf16, by their names, without NCCL. Gloo sends bfloat16."""

    def exchange(state, bucket):  # type: ignore[no-untyped-def]  # torch would take annotations for wrong: ours are texts
        return hook(state, bucket)

    return exchange

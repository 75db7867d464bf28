"""The table of libraries that train in parallel: what each call is there for, and what is not migrated, and why."""

from __future__ import annotations

from accelerate_migrate.analysis.library import DISTRIBUTED_DATA_PARALLEL, SPAWNERS
from accelerate_migrate.analysis.processes import SAMPLERS

# What the launcher and the accelerator do themselves.
STARTING = frozenset({"torch.distributed.init_process_group", "horovod.torch.init"})
ENDING = frozenset({"torch.distributed.destroy_process_group", "horovod.torch.shutdown"})
PINNING = frozenset({"torch.cuda.set_device", "torch.accelerator.set_device_index"})
WAITING = frozenset({"torch.distributed.barrier", "torch.distributed.monitored_barrier", "horovod.torch.barrier"})
# `prepare` makes parameters and optimizer states equal on all processes.
ALIGNING = frozenset({"horovod.torch.broadcast_parameters", "horovod.torch.broadcast_optimizer_state"})
WRAPPING_OPTIMIZERS = frozenset({"horovod.torch.DistributedOptimizer"})
SYNC_BATCH_NORM = frozenset({"torch.nn.SyncBatchNorm.convert_sync_batchnorm"})
ASKING = frozenset(
    ["torch.distributed." + name for name in ("is_available", "is_initialized", "get_rank", "get_world_size",
        "get_node_local_rank", "is_nccl_available", "is_gloo_available", "is_mpi_available",
        "is_torchelastic_launched")]
    + ["horovod.torch." + name for name in ("rank", "size", "local_rank", "local_size", "nccl_built", "is_initialized")]
)  # fmt: skip
DESCRIBING = frozenset({"torch.distributed.get_backend", "torch.distributed.get_default_backend_for_device"})
REDUCING = frozenset({"torch.distributed.all_reduce", "torch.distributed.reduce", "horovod.torch.allreduce"})
PARALLEL = (
    STARTING
    | ENDING
    | WAITING
    | ALIGNING
    | WRAPPING_OPTIMIZERS
    | ASKING
    | DESCRIBING
    | REDUCING
    | SAMPLERS
    | DISTRIBUTED_DATA_PARALLEL
    | SYNC_BATCH_NORM
    | SPAWNERS
)
"""What is migrated."""

SET_UP = STARTING | ENDING | PINNING | ALIGNING
"""What goes without a trace, where it is a statement of its own."""

EVIDENCE = STARTING | SAMPLERS | DISTRIBUTED_DATA_PARALLEL | SPAWNERS | WRAPPING_OPTIMIZERS
"""What shows that a script trains in parallel by itself."""

LAUNCH_VARIABLES = frozenset({"MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE"})

_BY_HAND = "moves tensors between processes by hand, which prepare cannot take over"
_FSDP = "shards its model with FSDP by hand: take that out and choose FSDP in the launch config"
_REASONS = (
    ("torch.distributed.rpc", "trains over remote procedure calls (torch.distributed.rpc), which have no counterpart"),
    ("torch.distributed.autograd", "trains over remote procedure calls, which have no counterpart"),
    ("torch.distributed.optim", "trains with an optimizer that is spread over processes by hand"),
    ("torch.distributed.pipeline", "cuts its model into a pipeline by hand, which prepare cannot take over"),
    ("torch.distributed.pipelining", "cuts its model into a pipeline by hand, which prepare cannot take over"),
    ("torch.distributed.fsdp", _FSDP),
    ("torch.distributed._composable", _FSDP),
    ("torch.distributed.tensor", "splits its tensors over a device mesh by hand, which prepare cannot take over"),
    ("torch.distributed._tensor", "splits its tensors over a device mesh by hand, which prepare cannot take over"),
    ("torch.distributed.device_mesh", "lays out a device mesh by hand, which prepare cannot take over"),
    ("torch.distributed.init_device_mesh", "lays out a device mesh by hand, which prepare cannot take over"),
    ("torch.distributed.algorithms", "trains on uneven inputs by Join or changes how DDP communicates"),
    ("torch.distributed.new_group", "forms process groups of its own, which prepare cannot take over"),
    ("torch.distributed.new_subgroups", "forms process groups of its own, which prepare cannot take over"),
    ("torch.distributed", _BY_HAND),
    ("horovod.torch.elastic", "lets its number of processes change (elastic Horovod), which has no counterpart"),
    ("horovod.torch.SyncBatchNorm", "uses Horovod's SyncBatchNorm; use torch.nn.SyncBatchNorm first"),
    ("horovod.torch", _BY_HAND),
    ("horovod", "uses Horovod in a way that is not migrated"),
)  # fmt: skip
_HARMLESS = ("torch.distributed.ReduceOp", "torch.distributed.reduce_op", "horovod.torch.Compression")


def unsupported(name: str) -> str | None:
    """Why a parallel library's function is not migrated; ``None`` where it is, or is no matter of this table."""
    if name in PARALLEL or name.startswith(_HARMLESS):
        return None
    return next((why for prefix, why in _REASONS if name == prefix or name.startswith(prefix + ".")), None)


def is_parallel(name: str) -> bool:
    """Whether this table decides about a qualified name."""
    return name in PARALLEL or name.startswith(("torch.distributed", "horovod")) or name in SPAWNERS

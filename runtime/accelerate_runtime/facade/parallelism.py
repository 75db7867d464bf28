"""Where this process stands in what spreads the model: engines, and the device mesh."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..models import has_device_map
from ..topology import DistributedType, Topology
from .settings import Settings

if TYPE_CHECKING:
    from ..plugins.deepspeed import DeepSpeedPlugin
    from ..plugins.parallelism import ParallelismConfig


class Parallelism(Settings):
    """The part of an Accelerator that tells how training is spread."""

    @property
    def multi_device(self) -> bool:
        """Whether there are several processes, each with an accelerator of its own, under data parallelism."""
        return self.distributed_type.startswith("MULTI_") and self.distributed_type != DistributedType.MULTI_CPU

    @property
    def parallelism_config(self) -> ParallelismConfig | None:
        """How the processes are spread, or None."""
        return self.state.parallelism_config

    @property
    def torch_device_mesh(self) -> Any:
        """The mesh of `parallelism_config`, or None."""
        return self.state.device_mesh

    @property
    def deepspeed_plugin(self) -> DeepSpeedPlugin | None:
        """The DeepSpeedPlugin in use, or None."""
        return self.state.deepspeed_plugin

    @property
    def is_fsdp2(self) -> bool:
        """Whether models are sharded by FSDP2."""
        return self.state.is_fsdp2

    @property
    def is_composable_parallelism_enabled(self) -> bool:
        """Whether parallelism of several kinds can be combined: as `is_fsdp2`."""
        return self.is_fsdp2

    @property
    def should_save_model(self) -> bool:
        """Whether this process is one that writes the model."""
        return self.is_local_main_process

    @property
    def data_parallel_rank(self) -> int:
        """Which of the model's copies this process has. Needs a `parallelism_config`, as the next ones do."""
        return self._rank_in("dp_replicate")

    @property
    def data_parallel_shard_rank(self) -> int:
        """Which shard of its copy this process has."""
        return self._rank_in("dp_shard")

    @property
    def tensor_parallel_rank(self) -> int:
        """Which part of each tensor this process has."""
        return self._rank_in("tp")

    @property
    def context_parallel_rank(self) -> int:
        """Which part of each sequence this process has."""
        return self._rank_in("cp")

    @property
    def pipeline_parallel_rank(self) -> int:
        """Which stage this process runs (interleaved: the first of them)."""
        return self._rank_in("pp")

    def _rank_in(self, dimension: str) -> int:
        config = self.parallelism_config
        if config is None:
            raise RuntimeError(f"a rank in {dimension!r} needs a device mesh: pass Accelerator(parallelism_config=...)")
        return int(self.torch_device_mesh.get_local_rank(dimension)) if dimension in config.active_mesh_dims else 0

    def maybe_context_parallel(
        self,
        buffers: Sequence[torch.Tensor] | None = None,
        buffer_seq_dims: Sequence[int] | None = None,
        no_restore_buffers: set[torch.Tensor] | None = None,
    ) -> AbstractContextManager[None]:
        """A context in which each process has its part of the sequences in `buffers`, under `cp_size > 1`.

        Forward, loss and backward belong inside. Elsewhere (`cp_size` of 1) the context does nothing.

        Args:
            buffers: tensors with a sequence dimension, which are changed in place and whole again afterwards: inputs,
                labels (shifted already), and positions, since those that a model counts itself would be wrong. Their
                lengths must be multiples of twice `cp_size`.
            buffer_seq_dims: the sequence dimension of each.
            no_restore_buffers: those of `buffers` that need not be whole again.

        Raises:
            ValueError: buffers that cannot be split, or attention that is not causal.
            RuntimeError: the model's attention did not go through `scaled_dot_product_attention`.
        """
        config = self.parallelism_config
        if config is None or not config.cp_enabled:
            return nullcontext()
        from ..strategies.context_parallel import split_sequences

        rotation = config.cp_handler.cp_comm_strategy  # type: ignore[union-attr]
        forget = set() if no_restore_buffers is None else no_restore_buffers
        return split_sequences(self.torch_device_mesh["cp"], rotation, buffers or [], buffer_seq_dims or [], forget)

    def verify_device_map(self, model: nn.Module) -> bool:
        """Whether a library has spread the model over several devices (`device_map="auto"`)."""
        return has_device_map(model)


def build_mesh(config: ParallelismConfig | None, place: Topology) -> Any:
    """The device mesh of `config`, which is checked against the processes there are; None where there is none.

    Raises:
        ValueError: it takes another number of processes.
    """
    if config is None or (config.total_size == 1 and place.num_processes == 1):
        return None
    if config.total_size == 1:
        config.dp_replicate_size = place.num_processes
    config.check_processes(place.num_processes)
    return config.get_device_mesh(place.device.type)

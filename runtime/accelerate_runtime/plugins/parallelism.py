"""How many processes each kind of parallelism gets: the sizes of a device mesh."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..environment import parse_flag_from_env
from .pipeline import TorchPipelineParallelConfig

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_PREFIX = "PARALLELISM_CONFIG_"
_ORDER = ("pp", "dp_replicate", "dp_shard", "cp", "sp", "tp")  # of the mesh: outermost first
_COMM_STRATEGIES = ("allgather", "alltoall")
NO_ULYSSES = (
    "sequence parallelism by DeepSpeed (Ulysses, ALST) is not supported in this version of accelerate_runtime. To "
    "split sequences, use context parallelism: ParallelismConfig(cp_size=...), without DeepSpeed, in models whose "
    "attention is torch's scaled_dot_product_attention with is_causal=True, inside of `with "
    "accelerator.maybe_context_parallel(...)`; or tensor parallelism with "
    "TorchTensorParallelConfig(sequence_parallel=True)."
)
"""Said wherever it is asked for."""
_NO_SP_ATTENTION = ("eager", "flex_attention")


@dataclass
class TorchTensorParallelConfig:
    """How tensor parallelism is done. All but `enable_async_tp` is ours; Accelerate does not have it.

    Args:
        plan: which layers are split, and how: for their names (`*` stands for one part of a name: "layers.*.up") a
            style, "colwise" or "rowwise" and its kind as transformers' models have them in `tp_plan`, or one of
            `torch.distributed.tensor.parallel`. None takes the model's own `tp_plan`, else derives one.
        sequence_parallel: split activations along the sequence where layers are not split. None reads
            PARALLELISM_CONFIG_TP_SEQUENCE_PARALLEL.
        loss_parallel: leave logits split along the classes where a loss is computed; `cross_entropy` knows how. None
            reads PARALLELISM_CONFIG_TP_LOSS_PARALLEL.
        enable_async_tp: not supported.
    """

    enable_async_tp: bool = False
    plan: Mapping[str, Any] | None = None
    sequence_parallel: bool = None  # type: ignore[assignment]
    loss_parallel: bool = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        for name in ("sequence_parallel", "loss_parallel"):
            if getattr(self, name) is None:
                setattr(self, name, parse_flag_from_env(f"{_PREFIX}TP_{name.upper()}"))
        if self.plan is not None and (self.sequence_parallel or self.loss_parallel):
            raise ValueError(
                "TorchTensorParallelConfig(plan=...) says itself what is split along the sequence or the classes, by "
                "styles of torch.distributed.tensor.parallel: leave sequence_parallel and loss_parallel out."
            )
        if self.enable_async_tp:
            raise NotImplementedError("TorchTensorParallelConfig(enable_async_tp=True) is not supported; leave it out.")


@dataclass
class TorchTensorParallelPlugin:
    """What asked for tensor parallelism before `ParallelismConfig(tp_size=...)`, which it is taken as.

    Args:
        torch_device_mesh: None; the mesh is made of the size.
    """

    tp_size: int = 1
    torch_device_mesh: Any = None

    def __post_init__(self) -> None:
        if self.torch_device_mesh is not None:
            raise NotImplementedError(
                "TorchTensorParallelPlugin(torch_device_mesh=...) is not supported: pass ParallelismConfig(tp_size=), "
                "which makes the mesh."
            )


@dataclass
class TorchContextParallelConfig:
    """How context parallelism exchanges keys and values: "allgather" (the default) or "alltoall".

    None reads PARALLELISM_CONFIG_CP_COMM_STRATEGY.
    """

    cp_comm_strategy: str = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.cp_comm_strategy is None:
            self.cp_comm_strategy = os.environ.get(f"{_PREFIX}CP_COMM_STRATEGY") or "allgather"
        if self.cp_comm_strategy not in _COMM_STRATEGIES:
            raise ValueError(
                f"Invalid cp_comm_strategy: {self.cp_comm_strategy}; allowed are {' and '.join(_COMM_STRATEGIES)}"
            )


@dataclass
class DeepSpeedSequenceParallelConfig:
    """How sequence parallelism (DeepSpeed-Ulysses) is done, which an Accelerator of this version refuses. None reads
    PARALLELISM_CONFIG_SP_… of the same name.

    Args:
        sp_seq_length: the length of all sequences; needed where it does not vary.
        sp_seq_length_is_variable: whether lengths vary between batches (the default).
        sp_attn_implementation: "sdpa", "flash_attention_2", "flash_attention_3" or a kernel of the hub ("owner/name").
    """

    sp_seq_length: int | None = None
    sp_seq_length_is_variable: bool | None = None
    sp_attn_implementation: str | None = None

    def __post_init__(self) -> None:
        if self.sp_seq_length_is_variable is None:
            self.sp_seq_length_is_variable = parse_flag_from_env(f"{_PREFIX}SP_SEQ_LENGTH_IS_VARIABLE", True)
        if self.sp_seq_length is None:
            text = os.environ.get(f"{_PREFIX}SP_SEQ_LENGTH", "None")
            self.sp_seq_length = None if text == "None" else int(text)
        if self.sp_seq_length is None and not self.sp_seq_length_is_variable:
            raise ValueError(
                f"sp_seq_length_is_variable=False needs the length: pass sp_seq_length, or set {_PREFIX}SP_SEQ_LENGTH."
            )
        if self.sp_attn_implementation is None:
            self.sp_attn_implementation = os.environ.get(f"{_PREFIX}SP_ATTN_IMPLEMENTATION") or None
        name = self.sp_attn_implementation
        known = ("flash_attention_2", "flash_attention_3", "sdpa")
        if name is not None and (name in _NO_SP_ATTENTION or (name not in known and "/" not in name)):
            raise ValueError(
                f"Invalid sp_attn_implementation: {name}; allowed are {', '.join(known)} or 'owner/kernel'"
            )


@dataclass
class ParallelismConfig:
    """How the processes are spread over kinds of parallelism. The product of the sizes is their number.

    A size that is None is read from PARALLELISM_CONFIG_DP_REPLICATE_SIZE and its kind, else it is 1.

    Args:
        dp_replicate_size: copies of the model (data parallelism).
        dp_shard_size: processes that a copy's parameters are sharded over (FSDP).
        tp_size, cp_size, sp_size: processes for tensor, context and sequence parallelism; an Accelerator of this
            version takes no sp_size over 1.
        cp_backend, sp_backend: "torch" and "deepspeed", the only ones.
        pp_size: stages of a pipeline. It is ours; Accelerate does not have it.
        tp_handler, cp_handler, sp_handler, pp_handler: how each is done; made from the environment where its size is
            over 1.

    Raises:
        ValueError: sizes that are none, or that do not go together.
    """

    dp_replicate_size: int = None  # type: ignore[assignment]
    dp_shard_size: int = None  # type: ignore[assignment]
    tp_size: int = None  # type: ignore[assignment]
    cp_size: int = None  # type: ignore[assignment]
    cp_backend: str = None  # type: ignore[assignment]
    sp_size: int = None  # type: ignore[assignment]
    sp_backend: str = None  # type: ignore[assignment]
    tp_handler: TorchTensorParallelConfig | None = None
    cp_handler: TorchContextParallelConfig | None = None
    sp_handler: DeepSpeedSequenceParallelConfig | None = None
    pp_size: int = None  # type: ignore[assignment]
    pp_handler: TorchPipelineParallelConfig | None = None
    device_mesh: DeviceMesh | None = field(default=None, init=False, repr=False, compare=False)
    joint_meshes: dict[str, DeviceMesh] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The joint dimensions of the mesh, by name; torch would have them kept by who made them."""

    def __post_init__(self) -> None:
        for kind in _ORDER:
            setattr(self, f"{kind}_size", self._read_size(f"{kind}_size"))
        self.cp_backend = _only("cp_backend", self.cp_backend, "torch")
        self.sp_backend = _only("sp_backend", self.sp_backend, "deepspeed")
        if self.cp_enabled and self.sp_enabled:
            raise ValueError(
                f"cp_size={self.cp_size} and sp_size={self.sp_size}: context and sequence parallelism do not go "
                "together; set one of them to 1."
            )
        if self.cp_enabled and self.dp_replicate_enabled and not self.dp_shard_enabled:
            raise ValueError(
                f"dp_replicate_size={self.dp_replicate_size} with cp_size={self.cp_size}: copies of a model that is "
                "split over context must be sharded too; set dp_shard_size > 1, or use dp_shard_size instead of "
                "dp_replicate_size."
            )
        self._make_handlers()

    def _read_size(self, name: str) -> int:
        value: Any = getattr(self, name)
        if value is None:
            text = os.environ.get(f"{_PREFIX}{name.upper()}") or "1"
            value = int(text) if text.lstrip("-").isdigit() else text
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}: must be a whole number, 1 or more")
        return value

    def _make_handlers(self) -> None:
        kinds = {
            "tp": TorchTensorParallelConfig,
            "cp": TorchContextParallelConfig,
            "sp": DeepSpeedSequenceParallelConfig,
            "pp": TorchPipelineParallelConfig,
        }
        for name, kind in kinds.items():
            handler = getattr(self, f"{name}_handler")
            if handler is not None and not isinstance(handler, kind):
                raise ValueError(f"{name}_handler is a {type(handler).__name__}; pass a {kind.__name__}")
            if handler is None and getattr(self, f"{name}_size") > 1:
                setattr(self, f"{name}_handler", kind())

    def to_json(self) -> str:
        """The configuration as JSON text."""
        own = {name: value for name, value in vars(self).items() if "mesh" not in name}
        plain = {name: dataclasses.asdict(v) if dataclasses.is_dataclass(v) else v for name, v in own.items()}  # type: ignore[arg-type]
        return json.dumps(plain, default=repr)

    # Sizes

    @property
    def sizes(self) -> dict[str, int]:
        """All, by their names."""
        return {f"{kind}_size": getattr(self, f"{kind}_size") for kind in _ORDER}

    @property
    def total_size(self) -> int:
        """The number of processes that this takes."""
        return self.data_parallel_size * self.non_data_parallel_size

    @property
    def data_parallel_size(self) -> int:
        """How many processes get different batches."""
        return self.dp_replicate_size * self.dp_shard_size

    @property
    def non_data_parallel_size(self) -> int:
        """How many processes work on one batch together."""
        return self.tp_size * self.cp_size * self.sp_size * self.pp_size

    @property
    def dp_replicate_enabled(self) -> bool:
        """Whether there are several copies of the model."""
        return self.dp_replicate_size > 1

    @property
    def dp_shard_enabled(self) -> bool:
        """Whether parameters are sharded."""
        return self.dp_shard_size > 1

    @property
    def tp_enabled(self) -> bool:
        """Whether tensors are split."""
        return self.tp_size > 1

    @property
    def cp_enabled(self) -> bool:
        """Whether context is split."""
        return self.cp_size > 1

    @property
    def sp_enabled(self) -> bool:
        """Whether sequences are split."""
        return self.sp_size > 1

    @property
    def pp_enabled(self) -> bool:
        """Whether the model's depth is split."""
        return self.pp_size > 1

    # Names of the mesh's dimensions whose size is over 1

    def _enabled(self, *kinds: str) -> list[str]:
        return [kind for kind in kinds if getattr(self, f"{kind}_size") > 1]

    @property
    def dp_dim_names(self) -> list[str]:
        """Those along which batches differ."""
        return self._enabled("dp_replicate", "dp_shard")

    @property
    def non_dp_dim_names(self) -> list[str]:
        """Those along which the batch is the same."""
        return self._enabled("tp", "cp", "sp", "pp")

    @property
    def dp_shard_cp_dim_names(self) -> list[str]:
        """Those along which parameters are sharded."""
        return self._enabled("dp_shard", "cp")

    @property
    def dp_cp_dim_names(self) -> list[str]:
        """Those along which the loss is averaged."""
        return self._enabled("dp_replicate", "dp_shard", "cp")

    @property
    def fsdp_dim_names(self) -> list[str]:
        """Those of the mesh that FSDP is given."""
        return [*self._enabled("dp_replicate"), "dp_shard_cp"]

    @property
    def active_mesh_dims(self) -> list[str]:
        """All of them."""
        return self.dp_dim_names + self.non_dp_dim_names

    # The mesh

    def build_device_mesh(self, device_type: str) -> DeviceMesh | None:
        """A mesh of the sizes over 1, with the joint dimensions "dp", "dp_shard_cp", "dp_cp" and "model" (all that
        work on one batch) where there are any.

        None where there is nothing to spread, or where DeepSpeed makes its own groups (sequence parallelism). Every
        process must call this.

        Args:
            device_type: such as "cuda" or "cpu".
        """
        copied = (
            self.tp_enabled and self.dp_replicate_enabled
        )  # FSDP2 copies what it shards, over one process if need be
        wanted = {*self.active_mesh_dims, *(["dp_shard"] if copied else [])}
        names = tuple(kind for kind in _ORDER if kind in wanted)
        if not names or self.sp_enabled:
            return None
        from ..meshes import hold, make_mesh

        sizes = tuple(getattr(self, f"{name}_size") for name in names)
        mesh = make_mesh(device_type, sizes, names)
        for joint, parts in (
            ("dp", self.dp_dim_names),
            ("dp_shard_cp", self.dp_shard_cp_dim_names),
            ("dp_cp", self.dp_cp_dim_names),
            ("model", self.non_dp_dim_names),
            ("dp_shard_tp", ["dp_shard", "tp"]),  # over which norms are summed
        ):
            if parts and set(parts) <= set(names):
                self.joint_meshes[joint] = mesh[tuple(parts)]._flatten(joint)
                hold(self.joint_meshes[joint])
        return mesh

    def get_device_mesh(self, device_type: str | None = None) -> DeviceMesh | None:
        """The mesh, built at the first call, which must say for which `device_type`.

        Raises:
            ValueError: no device type at the first call, or another one later.
        """
        if self.device_mesh is None:
            if device_type is None:
                raise ValueError(
                    "get_device_mesh() builds the mesh at its first call: pass a device type, such as 'cuda'"
                )
            self.device_mesh = self.build_device_mesh(device_type)
        elif device_type is not None and self.device_mesh.device_type != device_type:
            raise ValueError(
                f"get_device_mesh({device_type!r}): the mesh was built for {self.device_mesh.device_type!r} before"
            )
        return self.device_mesh

    def check_processes(self, num_processes: int) -> None:
        """Raise ValueError unless this takes as many processes as there are."""
        if self.total_size != num_processes:
            sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
            raise ValueError(
                f"ParallelismConfig({sizes}) takes {self.total_size} processes, but there are {num_processes}"
            )


def _only(name: str, value: str | None, allowed: str) -> str:
    value = value if value is not None else os.environ.get(f"{_PREFIX}{name.upper()}") or allowed
    if value != allowed:
        raise ValueError(f"{name}={value!r}: allowed is {allowed!r}")
    return value

"""Who we are among the processes, on which device: read once from the environment, shared by the whole process."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch
import torch.distributed as dist

from . import devices, waiting, xla
from .environment import get_int_from_env, parse_flag_from_env
from .plugins import InitProcessGroupKwargs


class DistributedType(str, Enum):
    """How training is spread. A string too: `DistributedType.NO == "NO"`."""

    NO = "NO"
    MULTI_CPU = "MULTI_CPU"
    MULTI_GPU = "MULTI_GPU"
    MULTI_NPU = "MULTI_NPU"
    MULTI_MLU = "MULTI_MLU"
    MULTI_SDAA = "MULTI_SDAA"
    MULTI_MUSA = "MULTI_MUSA"
    MULTI_XPU = "MULTI_XPU"
    MULTI_HPU = "MULTI_HPU"
    MULTI_NEURON = "MULTI_NEURON"
    DEEPSPEED = "DEEPSPEED"
    FSDP = "FSDP"
    XLA = "XLA"
    MEGATRON_LM = "MEGATRON_LM"

    def __str__(self) -> str:
        return f"DistributedType.{self.name}"


@dataclass(frozen=True)
class Topology:
    """This process's place: its index (overall and on its machine), the number of processes, its device."""

    process_index: int
    local_process_index: int
    num_processes: int
    device: torch.device
    backend: str | None
    distributed_type: DistributedType

    @property
    def is_main_process(self) -> bool:
        return self.process_index == 0

    @property
    def is_local_main_process(self) -> bool:
        return self.local_process_index == 0

    @property
    def is_last_process(self) -> bool:
        return self.process_index == self.num_processes - 1


# What launchers say of a process: torchrun and ours, Intel MPI, Open MPI, MVAPICH.
_RANK = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_WORLD = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
_LOCAL_RANK = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK")

_current: Topology | None = None
_owns_group = False
_debugging: bool | None = None
_before_shutdown: list[Callable[[], None]] = []


def connect(cpu: bool = False, init: InitProcessGroupKwargs | None = None) -> Topology:
    """The topology of this process; the first call reads the environment and joins the process group.

    Raises:
        ValueError: `cpu=True` after the process was set up on another device.
        RuntimeError: the environment names several processes but not where they meet, or more than there are devices.
    """
    global _current
    if _current is None:
        _current = _discover(cpu, init)
    elif cpu and _current.device.type != "cpu":
        raise ValueError(
            f"cpu=True, but this process already runs on {_current.device}: pass cpu=True where the first Accelerator "
            "or PartialState is created, or set ACCELERATE_USE_CPU=true."
        )
    return _current


def current() -> Topology:
    """The topology, set up from the environment if nobody has yet."""
    return _current if _current is not None else connect()


def is_connected() -> bool:
    """Whether `connect` has run."""
    return _current is not None


def rank() -> int:
    """This process's index: as set up, else as the launcher's environment says."""
    return _current.process_index if _current is not None else _told()[0]


def local_rank() -> int:
    """This process's index on its machine: as set up, else as the launcher's environment says."""
    return _current.local_process_index if _current is not None else get_int_from_env(_LOCAL_RANK, _told()[0])


def world_size() -> int:
    """The number of processes: as set up, else as the launcher's environment says."""
    return _current.num_processes if _current is not None else _told()[1]


def debugging() -> bool:
    """Whether collectives compare what they are called with first: as set, else as ACCELERATE_DEBUG_MODE says."""
    global _debugging
    if _debugging is None:
        _debugging = parse_flag_from_env("ACCELERATE_DEBUG_MODE")
    return _debugging


def set_debugging(on: bool) -> None:
    """Have collectives compare their arguments first, or not. To be called on all processes."""
    global _debugging
    _debugging = on


def before_shutdown(action: Callable[[], None]) -> None:
    """Have `action` called before the process group is destroyed (an engine lets go of the group there)."""
    if action not in _before_shutdown:
        _before_shutdown.append(action)


def shutdown() -> None:
    """Leave the process group, if we created it. Harmless when called twice."""
    global _owns_group
    waiting.end()
    if not _owns_group:
        return
    _owns_group = False
    for action in _before_shutdown:
        action()
    gc.collect()  # work handles and reducers in cycles must go before their group does
    if dist.is_initialized():
        dist.destroy_process_group()


def reset() -> None:
    """Forget the topology, so that the next `connect` reads the environment again (for tests)."""
    global _current, _debugging
    _current = _debugging = None


def _discover(cpu: bool, init: InitProcessGroupKwargs | None) -> Topology:
    rank, world = _told()
    local = get_int_from_env(_LOCAL_RANK, rank)
    device = _pick_device(cpu or parse_flag_from_env("ACCELERATE_USE_CPU"), local, world)
    if parse_flag_from_env("ACCELERATE_CPU_AFFINITY"):
        from .affinity import set_numa_affinity

        set_numa_affinity(local)
    if world == 1:
        return Topology(0, 0, 1, device, None, DistributedType.NO)
    backend = _join_group(device, init)
    return Topology(rank, local, world, device, backend, spread_over(device))


def _told() -> tuple[int, int]:
    """Our rank and the number of processes, where no topology is set up."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return get_int_from_env(_RANK, 0), get_int_from_env(_WORLD, 1)


def default_device(cpu: bool = False) -> torch.device:
    """The device of a single process: the one that ACCELERATE_TORCH_DEVICE names, the accelerator, or the CPU."""
    named = os.environ.get("ACCELERATE_TORCH_DEVICE")
    if named:
        return torch.device(named)
    if not cpu and xla.is_asked_for():
        return xla.device()
    found = None if cpu else devices.accelerator()
    return torch.device("cpu" if found is None else found.type)


def _pick_device(cpu: bool, local_rank: int, world: int) -> torch.device:
    device = default_device(cpu)
    if device.type == devices.XLA.name:
        if world > 1:
            xla.refuse(
                f"but {world} processes were started: start one, which drives all devices of its machine (several "
                "processes with XLA are not supported)."
            )
        return device
    if device.type == "cpu" or (world == 1 and device.index is None):
        return device
    kind = devices.kind_of(device)
    if world > 1 and not kind.shared:
        raise RuntimeError(
            f"{world} processes cannot share one {kind.label}: start one process, or pass --cpu (cpu=True) to spread "
            "over the processor."
        )
    if device.index is None:
        count = devices.count()
        if local_rank >= count:
            raise RuntimeError(
                f"process {local_rank} of this machine has no device: {count} {kind.name} device(s) found. Start at "
                f"most {count} processes here, or pass --cpu (cpu=True)."
            )
        device = torch.device(kind.name, local_rank)
    if kind.shared:
        devices.use(device)
    return device


def _join_group(device: torch.device, init: InitProcessGroupKwargs | None) -> str:
    global _owns_group
    if dist.is_initialized():
        waiting.begin()
        return str(dist.get_backend())
    arguments = init.to_kwargs() if init is not None else {}
    backend = arguments.pop("backend", None) or devices.collectives_of(device)
    rank, world = _told()
    if arguments.get("init_method") is None:
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
        missing = ([] if get_int_from_env(_RANK, -1) >= 0 else ["RANK"]) + missing
        if missing:
            raise RuntimeError(
                f"WORLD_SIZE={world} asks for several processes, but {', '.join(missing)} is not set: start the script "
                "with `accelerate-runtime launch` or `torchrun`."
            )
    arguments |= {"rank": rank, "world_size": world}
    _import_holders()
    dist.init_process_group(backend, **arguments)
    waiting.begin()
    if not _owns_group:
        _owns_group = True
        atexit.register(shutdown)
    return backend


def _import_holders() -> None:
    """Import what DDP would import later, when its functions' defaults (`group=group.WORLD`) would hold our group.

    A group that is held outlives `shutdown`, with gloo's threads: one of them that still has a tensor to let go of when
    the interpreter ends aborts the process.
    """
    importlib.import_module("torch.distributed.nn.functional")


def spread_over(device: torch.device) -> DistributedType:
    """The kind of several processes that each have a device like this one."""
    return DistributedType(devices.kind_of(device).spread)

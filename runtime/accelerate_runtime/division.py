"""How the data is divided among the processes: those that work on one model together get the same batches.

It is that of the latest Accelerator. Where nothing spreads a model (one process, data parallelism alone), each process
has a part of the data of its own.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import topology
from .topology import Topology

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from .plugins.parallelism import ParallelismConfig


@dataclass(frozen=True)
class Division:
    """This process's part of the data, and who has which.

    Attributes:
        place: this process, its index and the number being those of the parts.
        parts: for each process the index of its part.
        across: the mesh of those that hold the other parts, one of each; None where that is all processes, or one.
        within: the mesh of those that share this part; None where this is the only one.
        summed: the mesh of those whose numbers (losses, counts) add up to those of all data, if that is not `across`:
            where sequences are split, each process has a part of its samples' numbers.
    """

    place: Topology
    parts: tuple[int, ...]
    across: DeviceMesh | None = None
    within: DeviceMesh | None = None
    summed: DeviceMesh | None = None

    @property
    def numbers(self) -> tuple[int, Any]:
        """How many processes' numbers add up to those of all data, and their group."""
        if self.summed is None:
            return self.place.num_processes, self.group
        return self.summed.size(), self.summed.get_group()

    @property
    def group(self) -> Any:
        """The process group of `across`; None is that of all processes."""
        return None if self.across is None else self.across.get_group()

    @property
    def together(self) -> Any:
        """The process group of `within`."""
        return None if self.within is None else self.within.get_group()

    @property
    def shared(self) -> bool:
        """Whether several processes have the same part."""
        return len(self.parts) > self.place.num_processes

    @property
    def leader(self) -> int:
        """The first process that has this part."""
        return self.parts.index(self.place.process_index)


_current: Division | None = None


def each_its_own(place: Topology) -> Division:
    """Every process has another part."""
    return Division(place, tuple(range(place.num_processes)))


def of_mesh(config: ParallelismConfig | None, mesh: Any, place: Topology) -> Division:
    """The division by a device mesh: parts differ along the dimensions of data parallelism only.

    Args:
        mesh: of `config`; None where nothing spreads a model.
    """
    if config is None or mesh is None or not config.non_dp_dim_names:
        return each_its_own(place)
    names = list(mesh.mesh_dim_names)
    inner = config.non_dp_dim_names
    order = [*(names.index(n) for n in names if n not in inner), *(names.index(name) for name in inner)]
    rows = mesh.mesh.permute(order).reshape(config.data_parallel_size, -1).tolist()
    part_of = {rank: part for part, ranks in enumerate(rows) for rank in ranks}
    index = part_of[place.process_index]
    return Division(
        dataclasses.replace(place, process_index=index, num_processes=len(rows)),
        tuple(part_of[rank] for rank in range(place.num_processes)),
        across=config.joint_meshes["dp"] if config.dp_dim_names else None,
        within=config.joint_meshes["model"],
        summed=config.joint_meshes["dp_cp"] if config.cp_enabled else None,
    )


def current() -> Division:
    """The division of the latest Accelerator; without one, every process has another part."""
    return _current if _current is not None else each_its_own(topology.current())


def divide(division: Division) -> None:
    """Have the functions that gather and reduce go by `division` from now on."""
    global _current
    _current = division if division.shared else None
    topology.before_shutdown(forget)


def forget() -> None:
    """Let go of the division."""
    global _current
    _current = None

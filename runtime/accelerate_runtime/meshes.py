"""Device meshes that let go of their process groups in time."""

from __future__ import annotations

import functools
import warnings
import weakref
from typing import Any

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from . import topology

_held: dict[int, weakref.ref[Any]] = {}  # not a WeakSet: some of torch's holders have no hash


def make_mesh(device_type: str, shape: tuple[int, ...], names: tuple[str, ...]) -> DeviceMesh:
    """`init_device_mesh`, whose groups go where ours does: every process must call this.

    Args:
        device_type: such as "cuda" or "cpu".
    """
    mesh = init_device_mesh(device_type, shape, mesh_dim_names=names)
    mesh.__dict__["__deepcopy__"] = functools.partial(_itself, mesh)  # copies of models would hold groups of their own
    hold(mesh)
    return mesh


def _itself(mesh: DeviceMesh, _: Any) -> DeviceMesh:
    return mesh


def part_of_mesh(mesh: DeviceMesh, *names: str) -> DeviceMesh:
    """The dimensions `names` of `mesh`, which may be joint ones ("dp_cp")."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Slicing a flattened dim")  # they are kept with the mesh, for its users
        found: DeviceMesh = mesh[names]
    return found


def hold(holder: Any) -> None:
    """Have `holder`, a mesh or what keeps groups in attributes that end with `process_group`, let go of these before
    the process group is left: groups that outlive it abort the process where they meet the interpreter's end."""
    _held[id(holder)] = weakref.ref(holder)
    topology.before_shutdown(_let_go)


def _let_go() -> None:
    for reference in _held.values():
        holder = reference()
        if isinstance(holder, DeviceMesh):
            getattr(holder, "_pg_registry", {}).clear()
            continue
        for name in list(vars(holder)) if holder is not None else ():
            if name.endswith("process_group"):
                setattr(holder, name, None)
    _held.clear()

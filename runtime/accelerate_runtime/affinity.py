"""Which cores a process runs on: those near its accelerator, as Linux tells in /sys."""

from __future__ import annotations

import logging
import os
import sys
from functools import lru_cache
from pathlib import Path

from . import devices
from .environment import parse_flag_from_env

_SYS = Path("/sys")


@lru_cache
def set_numa_affinity(local_process_index: int, verbose: bool | None = None) -> None:
    """Keep this process on the cores near its GPU; without GPUs, on those of one NUMA node, which take turns.

    Once is enough: calling it again does nothing (`override_numa_affinity` does it again).

    Args:
        local_process_index: this process's index on its machine.
        verbose: log the cores; None does with ACCELERATE_DEBUG_MODE.

    Raises:
        NotImplementedError: this system is not Linux.
    """
    override_numa_affinity(local_process_index, verbose)


def override_numa_affinity(local_process_index: int, verbose: bool | None = None) -> None:
    """`set_numa_affinity`, also where that was called before."""
    if sys.platform != "linux":
        raise NotImplementedError(
            f"binding processes to cores is done on Linux only, not on {sys.platform}: leave out --enable_cpu_affinity "
            "(ACCELERATE_CPU_AFFINITY)."
        )
    allowed = os.sched_getaffinity(0)
    cores = allowed & _cores_near(local_process_index)
    if cores:  # a container may have been given none of them
        os.sched_setaffinity(0, cores)
    if parse_flag_from_env("ACCELERATE_DEBUG_MODE") if verbose is None else verbose:
        logging.getLogger(__name__).info("process %d runs on cores %s", local_process_index, sorted(cores or allowed))


def _cores_near(index: int) -> set[int]:
    address = devices.pci_address(index)
    node = None if address is None else _node_at(address)
    if node is None:
        nodes = sorted(int(path.name[4:]) for path in (_SYS / "devices/system/node").glob("node[0-9]*"))
        if address is not None or not nodes:
            return os.sched_getaffinity(0)  # the GPU is as near to all of them
        node = nodes[index % len(nodes)]
    listed = _SYS / f"devices/system/node/node{node}/cpulist"
    return parse_cpu_list(listed.read_text()) if listed.exists() else os.sched_getaffinity(0)


def _node_at(address: str) -> int | None:
    """The NUMA node that the device of a PCI address is attached to; None where the system does not say."""
    told = _SYS / "bus/pci/devices" / address / "numa_node"
    node = int(told.read_text()) if told.exists() else -1
    return node if node >= 0 else None


def parse_cpu_list(text: str) -> set[int]:
    """The cores of a list such as "0-3,8,10-11", as the kernel writes it."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores |= set(range(int(first), int(last or first) + 1))
    return cores

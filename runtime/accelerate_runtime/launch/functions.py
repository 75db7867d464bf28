"""Starting a function on several processes, from a notebook or a test."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from .. import devices, topology
from ..environment import patch_environment
from ..precision import check_mode
from ..state import AcceleratorState, GradientState, PartialState

_ONLY_LOOK = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""An environment in which torch does not initialise the GPUs that it looks for."""


def notebook_launcher(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    num_processes: int | None = None,
    mixed_precision: str = "no",
    use_port: str | int = "29500",
    master_addr: str = "127.0.0.1",
    node_rank: int = 0,
    num_nodes: int = 1,
    rdzv_backend: str = "static",
    rdzv_endpoint: str = "",
    rdzv_conf: dict[str, Any] | None = None,
    rdzv_id: str = "none",
    max_restarts: int = 0,
    monitor_interval: float = 0.1,
    log_line_prefix_template: str | None = None,
) -> None:
    """Train from a notebook: call `function(*args)` on `num_processes` processes, and return when they have ended.

    One process is this one. Several are forked, or, where this one already uses its accelerator (which a fork cannot
    share), started afresh; a function defined in the notebook then travels by value, which needs `cloudpickle`.

    Args:
        function: the training function, which creates the Accelerator.
        num_processes: how many here; None is one for each accelerator, or one on a machine without.
        mixed_precision: the precision for Accelerators that name none; "no" leaves it as the environment says.
        use_port: where the processes meet; on one machine, another port where it is taken.
        master_addr, node_rank, num_nodes: with several machines: the address of the first, which this is, and how many.
        rdzv_backend, rdzv_endpoint, rdzv_conf, rdzv_id, max_restarts, monitor_interval, log_line_prefix_template: as in
            `torch.distributed.launcher.api.LaunchConfig`. `max_restarts` is how often to start again after a failure.

    Raises:
        ValueError: an argument is not what it can be, or an Accelerator exists in this process already.
        ChildFailedError: a process failed.
    """
    check_mode(mixed_precision.lower())
    if not 0 <= node_rank < num_nodes:
        raise ValueError(f"node_rank={node_rank}: must be from 0 to num_nodes - 1, which is {num_nodes - 1}")
    count = _device_count() if num_processes is None else num_processes
    if count < 1:
        raise ValueError(f"num_processes={num_processes}: must be 1 or more")
    environment = {} if mixed_precision.lower() == "no" else {"ACCELERATE_MIXED_PRECISION": mixed_precision.lower()}
    if count * num_nodes == 1:
        print(f"Launching training on one {_device_name()}.")
        with patch_environment(**environment):
            function(*args)
        return
    _check_nothing_is_set_up("notebook_launcher")
    method = _start_method()
    worker = _Worker(function, args, portable=method == "spawn")
    print(f"Launching training on {count} processes ({_device_name()}).")
    with patch_environment(**_ONLY_LOOK, **environment):  # torch looks for GPUs when it is given this configuration
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

        conf = dict(rdzv_conf or {})
        if rdzv_backend == "static":
            conf["rank"] = node_rank
        if num_nodes == 1:
            use_port = _free_port(int(use_port))
        config = LaunchConfig(
            min_nodes=num_nodes,
            max_nodes=num_nodes,
            nproc_per_node=count,
            run_id=rdzv_id,
            rdzv_backend=rdzv_backend,
            rdzv_endpoint=rdzv_endpoint or f"{master_addr}:{use_port}",
            rdzv_configs=conf,
            max_restarts=max_restarts,
            monitor_interval=monitor_interval,
            start_method=method,
            log_line_prefix_template=log_line_prefix_template,
            local_addr=master_addr if num_nodes == 1 else None,
        )
        elastic_launch(config, worker.run)()


def debug_launcher(function: Callable[..., Any], args: tuple[Any, ...] = (), num_processes: int = 2) -> None:
    """Call `function(*args)` on `num_processes` CPU processes, forked from this one, for tests.

    Raises:
        ProcessRaisedException: a process failed; the message has its traceback.
    """
    _check_nothing_is_set_up("debug_launcher", an_accelerator_may_exist=True)
    method = "fork" if os.name == "posix" else "spawn"
    interface = {} if not Path("/sys/class/net/lo").exists() else {"GLOO_SOCKET_IFNAME": "lo"}
    with patch_environment(
        WORLD_SIZE=num_processes,
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=_free_port(0),
        ACCELERATE_USE_CPU="true",
        ACCELERATE_MIXED_PRECISION="no",
        **interface,
    ):
        worker = _Worker(function, args, portable=method == "spawn", numbered=True)
        start_processes(worker.run, nprocs=num_processes, start_method=method)  # type: ignore[no-untyped-call]


class _Worker:
    """What a process that we start runs.

    Args:
        portable: it will be pickled, for a process started afresh.
        numbered: it is called with the process's index, which the environment does not say.
    """

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], *, portable: bool, numbered: bool = False
    ) -> None:
        self.numbered, self.portable = numbered, portable
        self.work: Any = _pickled(function, args) if portable else (function, args)

    def run(self, *index: int) -> None:
        """Call the function, as one of several processes."""
        if self.numbered:
            os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(index[0])
        os.environ["FORK_LAUNCHED"] = "1"
        if not self.portable:
            torch.set_num_threads(1)  # a fork that uses threads where its parent did hangs
        # what a fork knows is its parent's
        AcceleratorState._reset_state()
        GradientState._reset_state()
        PartialState._reset_state()
        function, args = pickle.loads(self.work) if self.portable else self.work
        try:
            function(*args)
        finally:
            topology.shutdown()  # processes started so run no exit handlers
            sys.stdout.flush()
            sys.stderr.flush()


def _pickled(function: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    try:
        import cloudpickle
    except ModuleNotFoundError:
        script = getattr(sys.modules["__main__"], "__file__", None)
        if getattr(function, "__module__", None) == "__main__" and not (script and Path(script).is_file()):
            raise RuntimeError(
                f"this notebook already uses its accelerator, so the processes are started afresh, and "
                f"{getattr(function, '__name__', 'the function')}() is not in a module that they can import: pip "
                "install cloudpickle, or move it to a file, or restart the notebook and let nothing use the device "
                f"before notebook_launcher(){_suspects()}."
            ) from None
        return pickle.dumps((function, args))
    pickled: bytes = cloudpickle.dumps((function, args))
    return pickled


def _suspects() -> str:
    """Imports that are known to initialise accelerators."""
    found = [name for name in ("bitsandbytes", "deepspeed", "transformer_engine") if name in sys.modules]
    return f" (importing {' and '.join(found)} does)" if found else ""


def _check_nothing_is_set_up(name: str, an_accelerator_may_exist: bool = False) -> None:
    if dist.is_available() and dist.is_initialized():
        raise RuntimeError(f"{name}() was called in a process that is one of several already")
    if not an_accelerator_may_exist and AcceleratorState._shared_state:
        raise ValueError(
            f"{name}() starts several processes, but an Accelerator exists in this one, and does not know of the "
            "others: create it inside the training function only, and restart the notebook."
        )


def _accelerator() -> torch.device | None:
    with patch_environment(**_ONLY_LOOK):
        return devices.accelerator()


def _device_count() -> int:
    with patch_environment(**_ONLY_LOOK):
        return max(1, devices.count())


def _device_name() -> str:
    device = _accelerator()
    return (devices.CPU if device is None else devices.kind_of(device)).label


def _start_method() -> str:
    """How to start processes: a fork cannot use an accelerator that its parent has initialised."""
    device = _accelerator()
    if os.name != "posix":
        return "spawn"
    return "fork" if device is None or devices.is_untouched(device) else "spawn"


def _free_port(wanted: int) -> int:
    """`wanted`, or another port where that is taken or 0."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise RuntimeError("this machine has no free port left")

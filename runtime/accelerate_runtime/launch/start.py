"""Starting processes: one directly, several under torch's elastic agent."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import uuid
from typing import Any

from .config import LaunchPlan


def start(plan: LaunchPlan, command: list[str]) -> int:
    """Run `command` (arguments of the Python interpreter) as `plan` says; returns the exit code.

    A single process takes our place, so that signals and exit codes are its own.
    """
    os.environ.update(plan.environment)
    if plan.processes * plan.machines == 1:
        return _start_one([sys.executable, *command])
    return _start_many(plan, command)


def _start_one(command: list[str]) -> int:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execv(command[0], command)
    return subprocess.run(command).returncode


def _start_many(plan: LaunchPlan, command: list[str]) -> int:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    _quiet_the_agent()
    try:
        elastic_launch(_elastic_config(plan), sys.executable)(*command)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        code: int = failure.exitcode
        how = f"was killed by {failure.signal_name()}" if code < 0 else f"ended with exit code {code}"
        _say(f"process {rank} (pid {failure.pid}) {how}; the other processes were stopped")
        return 128 - code if code < 0 else code
    except SignalException as error:
        _say(f"stopped by {error.sigval.name}, and so were the processes")
        return 128 + error.sigval.value
    return 0


def _elastic_config(plan: LaunchPlan) -> Any:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig

    common: dict[str, Any] = {
        "min_nodes": plan.machines,
        "max_nodes": plan.machines,
        "nproc_per_node": plan.processes,
        "max_restarts": 0,
        "monitor_interval": 0.1,
        "start_method": "spawn",
        "logs_specs": DefaultLogsSpecs(),
    }
    if plan.machines == 1:
        return LaunchConfig(
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint=f"127.0.0.1:{plan.port}",
            local_addr="127.0.0.1",
            **common,
        )
    return LaunchConfig(
        run_id="accelerate-runtime",
        rdzv_backend="static",
        rdzv_endpoint=f"{plan.address}:{plan.port}",
        rdzv_configs={"rank": plan.machine_rank, "timeout": 900},
        **common,
    )


def _quiet_the_agent() -> None:
    """The agent logs its own stack when a worker fails; the worker has already shown its traceback."""
    for name in ("torch.distributed.elastic", "torch.distributed.elastic.multiprocessing.api", "torch.distributed.run"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _say(message: str) -> None:
    sys.stderr.write(f"accelerate-runtime: {message}\n")

"""Processes in the care of torch's elastic agent: watched, restarted, logged, and stopped together."""

from __future__ import annotations

import logging
import os
import socket
import sys
import uuid
from typing import Any

from . import meeting
from .config import ConfigError
from .plan import LaunchPlan


def start_watched(plan: LaunchPlan, command: list[str], quiet: bool) -> int:
    """Start the processes, watch them until they end, and return the exit code; see `start`."""
    if plan.port and plan.machine_rank == 0:
        meeting.check_port(plan.port)
    from torch.distributed import DistNetworkError, DistStoreError
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.launcher.api import elastic_launch

    say = _ignore if quiet else _say
    _quiet_the_agent()
    config = _elastic_config(plan)
    if plan.logged:
        say(f"logs of each process are in {config.logs_specs.root_log_dir}")
    store = meeting.meet(plan, say) if plan.machines > 1 and plan.rendezvous == "static" else None
    try:
        elastic_launch(config, command[0])(*command[1:])
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        code: int = failure.exitcode
        how = f"was killed by {failure.signal_name()}" if code < 0 else f"ended with exit code {code}"
        say(f"process {rank} (pid {failure.pid}) {how}; the other processes were stopped")
        return 128 - code if code < 0 else code
    except SignalException as error:
        say(f"stopped by {error.sigval.name}, and so were the processes")
        return 128 + error.sigval.value
    except (RendezvousError, DistNetworkError, DistStoreError) as error:
        if plan.machines == 1:
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"machine {plan.machine_rank} of {plan.machines} lost the others, or did not find them at "
            f"{plan.address}:{plan.port}: {reason}"
        ) from None
    finally:
        del store  # machine 0 serves it: it must outlive the processes
    return 0


def _elastic_config(plan: LaunchPlan) -> Any:
    from torch.distributed.launcher.api import LaunchConfig

    common: dict[str, Any] = {
        "min_nodes": plan.machines,
        "max_nodes": plan.machines,
        "nproc_per_node": plan.processes,
        "max_restarts": plan.max_restarts,
        "monitor_interval": plan.monitor_interval,
        "role": plan.role,
        "start_method": "spawn",
        "logs_specs": _logs(plan),
    }
    if plan.machines == 1:
        return LaunchConfig(
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint=f"127.0.0.1:{plan.port}",
            rdzv_configs=dict(plan.rendezvous_options),
            local_addr="127.0.0.1",
            **common,
        )
    options = {"join_timeout": int(plan.rendezvous_options["timeout"])} | plan.rendezvous_options
    own = None
    if plan.rendezvous == "static":
        options["rank"] = plan.machine_rank
    else:  # torch would guess both from the machine's name, which may be known to nobody
        options.setdefault("is_host", str(int(plan.machine_rank == 0)))
        own = _own_address(plan)
    return LaunchConfig(
        run_id="accelerate-runtime",
        rdzv_backend=plan.rendezvous,
        rdzv_endpoint=f"{plan.address}:{plan.port}",
        rdzv_configs=options,
        local_addr=own,
        **common,
    )


def _own_address(plan: LaunchPlan) -> str | None:
    """The address of this machine on the way to machine 0; None where there is no way, which will be told later."""
    try:
        family, _, _, _, where = socket.getaddrinfo(plan.address, plan.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _logs(plan: LaunchPlan) -> Any:
    """Where output goes. A folder without --tee gets both streams, which are shown as well."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std

    if not plan.logged:
        return DefaultLogsSpecs(log_dir=os.devnull)  # by default it makes a folder, and leaves it there
    try:
        tee = Std.ALL if plan.tee == "0" else Std.from_str(plan.tee)
    except ValueError:
        raise ConfigError(
            f"tee is {plan.tee!r}: give 1 (standard output), 2 (standard error) or 3 (both), or such a number for some "
            "processes, as in 0:3,1:2"
        ) from None
    try:
        return DefaultLogsSpecs(log_dir=plan.log_dir, tee=tee)
    except OSError as error:
        raise ConfigError(f"log_dir {plan.log_dir}: {error.strerror or 'it is a file'}") from None


def _quiet_the_agent() -> None:
    """The agent logs its own stack when a worker fails; the worker has already shown its traceback."""
    for name in ("torch.distributed.elastic", "torch.distributed.elastic.multiprocessing.api", "torch.distributed.run"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _say(message: str) -> None:
    sys.stderr.write(f"accelerate-runtime: {message}\n")
    sys.stderr.flush()


def _ignore(message: str) -> None:
    pass

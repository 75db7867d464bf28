"""What a launch comes to: every value decided, and whether the parts fit. No torch here."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from ..devices import CPU, CUDA, VISIBLE_DEVICES, XLA
from ..environment import parse_flag_from_env
from .config import NOT_SUPPORTED, ConfigError, LaunchConfig, Settings
from .engines import ENGINES, asked_for

WAIT_FOR_MACHINES = 900.0
"""Seconds that machines wait for one another, unless --rdzv_conf timeout=… says otherwise."""


@dataclass(frozen=True)
class LaunchPlan:
    """A launch with every value decided."""

    processes: int
    """On this machine."""
    machines: int = 1
    machine_rank: int = 0
    address: str | None = None
    """Where the machines meet; None on one machine."""
    port: int = 0
    """0 is any free one."""
    rendezvous: str = "static"
    """How several machines find one another."""
    rendezvous_options: dict[str, Any] = field(default_factory=dict)
    max_restarts: int = 0
    monitor_interval: float = 0.1
    """Seconds."""
    role: str = "default"
    tee: str = "0"
    log_dir: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    """What the script's processes get beside our own environment."""
    warnings: tuple[str, ...] = ()

    @property
    def watched(self) -> bool:
        """Whether we stay, to watch, restart or log the processes; else the script's only process takes our place."""
        return self.processes * self.machines > 1 or bool(self.max_restarts) or self.logged

    @property
    def logged(self) -> bool:
        """Whether the processes' output also goes to files."""
        return self.log_dir is not None or self.tee != "0"


def resolve(settings: Settings, count_devices: Callable[[], int]) -> LaunchPlan:
    """Decide what is open, and check that the parts fit.

    Args:
        count_devices: called where something depends on the devices here.

    Raises:
        ConfigError: they do not fit, or ask for what this version does not do.
    """
    config = settings.config
    cpu = _asks_for_cpu(config) or _environment_says_cpu()
    _refuse_engines(settings)
    machines, rank = config.num_machines or 1, config.machine_rank or 0
    if rank >= machines:
        raise ConfigError(f"machine_rank is {rank}, but num_machines is {machines}: ranks count from 0")
    if config.distributed_type == XLA.spread and machines > 1:
        raise ConfigError(f"num_machines is {machines}: training by XLA is supported on one machine only")
    total, gpus = config.num_processes, config.chosen_gpus
    if config.distributed_type == XLA.spread:
        total = 1  # drives all devices
    if total == -1:
        raise ConfigError(f"{settings.origins['num_processes']} is -1: say how many with --num_processes")
    if total is None:
        if cpu or config.distributed_type == "NO":
            local = 1
        elif gpus is not None:
            local = len(gpus)
        else:
            local = max(1, count_devices())
        total = local * machines
    if total % machines:
        raise ConfigError(f"num_processes is {total}, which {machines} machines cannot share evenly")
    if machines > 1 and not (config.main_process_ip and config.main_process_port):
        raise ConfigError(f"num_machines is {machines}: say where they meet with main_process_ip and main_process_port")
    local = total // machines
    if gpus is not None and not cpu and local > len(gpus):
        raise ConfigError(f"gpu_ids {config.gpu_ids} are too few for {local} processes on this machine")
    return LaunchPlan(
        local,
        machines,
        rank,
        config.main_process_ip if machines > 1 else None,
        config.main_process_port or 0,
        config.rdzv_backend or "static",
        {"timeout": WAIT_FOR_MACHINES} | _numbers(config.rdzv_conf or {}),
        config.max_restarts or 0,
        config.monitor_interval or 0.1,
        config.role or "default",
        config.tee or "0",
        config.log_dir,
        _environment(config, cpu, local),
        _warnings(config, cpu, count_devices),
    )


def describe(settings: Settings, plan: LaunchPlan) -> list[tuple[str, str, str]]:
    """Name, value and origin of everything that was said or that has a default."""
    told = not _asks_for_cpu(settings.config) and _environment_says_cpu()
    cpu = _asks_for_cpu(settings.config) or told
    defaults = {
        "distributed_type": "NO" if plan.processes * plan.machines == 1 else "MULTI_CPU" if cpu else "by the devices",
        "use_cpu": "by the devices",
        "mixed_precision": os.environ.get("ACCELERATE_MIXED_PRECISION", "no"),
        "num_processes": str(plan.processes * plan.machines),
        "num_machines": "1",
        "main_process_port": "a free one" if plan.watched else None,
        "gpu_ids": "all",
        "num_cpu_threads_per_process": plan.environment.get("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS")),
        "max_restarts": "0" if plan.watched else None,
    }
    lines = []
    for name in (one.name for one in fields(LaunchConfig) if one.name != "engines"):
        said = getattr(settings.config, name)
        if name == "use_cpu" and told:
            lines.append((name, "True", "environment: ACCELERATE_USE_CPU"))
        elif said is not None:
            lines.append((name, str(said), settings.origins[name]))
        elif defaults.get(name) is not None:
            lines.append((name, str(defaults[name]), "default"))
    for engine, options in (settings.config.engines or {}).items():
        lines += [(ENGINES[engine].flag(option), value, "config") for option, value in options.items()]
    return lines


def _refuse_engines(settings: Settings) -> None:
    kind = settings.config.distributed_type
    if kind in NOT_SUPPORTED:
        raise ConfigError(
            f"{settings.origins['distributed_type']}: {kind} is not supported in this version: use FSDP, DEEPSPEED, "
            "MEGATRON_LM, MULTI_GPU, MULTI_CPU or NO, or pass --multi_gpu"
        )


def _numbers(options: dict[str, str]) -> dict[str, Any]:
    """Rendezvous options with seconds as numbers."""
    timeout = options.get("timeout")
    if timeout is None:
        return dict(options)
    try:
        seconds = float(timeout)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise ConfigError(f"rdzv_conf: timeout is {timeout!r}; it must be seconds, more than 0")
    return options | {"timeout": seconds}


def _environment(config: LaunchConfig, cpu: bool, local: int) -> dict[str, str]:
    environment: dict[str, str] = {}
    if config.distributed_type == XLA.spread and not cpu:
        environment["ACCELERATE_STRATEGY"] = XLA.name
        if "PJRT_DEVICE" not in os.environ:
            environment["PJRT_DEVICE"] = XLA.label
    if _asks_for_cpu(config):
        environment["ACCELERATE_USE_CPU"] = "true"
    for name, variable in (
        ("mixed_precision", "ACCELERATE_MIXED_PRECISION"),
        ("gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"),
        ("num_cpu_threads_per_process", "OMP_NUM_THREADS"),
    ):
        if getattr(config, name) is not None:
            environment[variable] = str(getattr(config, name))
    for name, variable in (("debug", "ACCELERATE_DEBUG_MODE"), ("enable_cpu_affinity", "ACCELERATE_CPU_AFFINITY")):
        if getattr(config, name):
            environment[variable] = "true"
    if config.chosen_gpus is not None and not cpu:
        variable = VISIBLE_DEVICES.get(config.distributed_type or "", str(CUDA.visible))
        environment[variable] = ",".join(config.chosen_gpus)
    if local > 1 and "OMP_NUM_THREADS" not in environment and "OMP_NUM_THREADS" not in os.environ:
        environment["OMP_NUM_THREADS"] = str(max(1, _cores() // local))
    for name, options in asked_for(config.engines or {}, config.distributed_type).items():
        environment = ENGINES[name].environment(options) | environment  # a flag wins over an engine's section
    return environment | _dynamo_environment(config)


def _dynamo_environment(config: LaunchConfig) -> dict[str, str]:
    if config.dynamo_backend is None or config.dynamo_backend == "no":
        asked = [name for name in vars(config) if name.startswith("dynamo_") and getattr(config, name)]
        if asked and config.dynamo_backend is None:
            raise ConfigError(f"{asked[0]} has no effect without a dynamo_backend; pass --dynamo_backend inductor")
        return {} if config.dynamo_backend is None else {"ACCELERATE_DYNAMO_BACKEND": "NO"}
    environment = {"ACCELERATE_DYNAMO_BACKEND": config.dynamo_backend.upper()}
    if config.dynamo_mode is not None:
        environment["ACCELERATE_DYNAMO_MODE"] = config.dynamo_mode
    for name in ("dynamo_use_fullgraph", "dynamo_use_dynamic", "dynamo_use_regional_compilation"):
        if getattr(config, name):
            environment[f"ACCELERATE_{name.upper()}"] = "true"
    return environment


def _warnings(config: LaunchConfig, cpu: bool, count_devices: Callable[[], int]) -> tuple[str, ...]:
    if config.distributed_type == XLA.spread and (config.num_processes or 1) > 1:
        return (f"num_processes is {config.num_processes}: with XLA one process is started, which drives all devices",)
    wanted = config.distributed_type in VISIBLE_DEVICES or config.chosen_gpus is not None
    if cpu or not wanted or count_devices():
        return ()
    return ("GPUs were asked for, but torch finds none here: this will run on the CPU",)


def _asks_for_cpu(config: LaunchConfig) -> bool:
    return bool(config.use_cpu) or config.distributed_type == CPU.spread


def _environment_says_cpu() -> bool:
    try:
        return parse_flag_from_env("ACCELERATE_USE_CPU")
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""The launch config: its schema, reading it, and what wins over what. No torch here."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

PRECISIONS = ("no", "fp16", "bf16")
DISTRIBUTED_TYPES = (
    "NO", "MULTI_CPU", "MULTI_GPU", "MULTI_XPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_HPU",
    "MULTI_NEURON", "FSDP", "DEEPSPEED", "MEGATRON_LM", "XLA", "TPU",
)  # fmt: skip
NOT_YET_TYPES = ("FSDP", "DEEPSPEED", "MEGATRON_LM", "XLA", "TPU")

# Keys of the schema that this version does not act on: taken where they ask for nothing.
NOT_YET_KEYS: dict[str, tuple[Any, ...]] = {
    "compute_environment": ("LOCAL_MACHINE", None),
    "debug": (False, None),
    "downcast_bf16": ("no", False, None),
    "dynamo_backend": ("NO", "no", None),
    "dynamo_config": ({}, None),
    "deepspeed_config": ({}, None),
    "enable_cpu_affinity": (False, None),
    "fp8_config": ({}, None),
    "fsdp_config": ({}, None),
    "main_training_function": ("main", None),
    "megatron_lm_config": ({}, None),
    "mpirun_config": ({}, None),
    "parallelism_config": ({}, None),
    "rdzv_backend": ("static", "c10d", None),
    "same_network": (True, False, None),
    "tpu_name": (None,),
    "tpu_zone": (None,),
    "tpu_use_cluster": (False, None),
    "tpu_use_sudo": (False, None),
    "tpu_vm": (None, []),
    "tpu_env": ([], None),
    "command_file": (None,),
    "commands": (None, []),
}


class ConfigError(ValueError):
    """A launch that cannot be: the message is one line, for a person."""


@dataclass
class LaunchConfig:
    """What to start. None is "not said": the next source decides, at last the defaults in `resolve`."""

    distributed_type: str | None = None
    mixed_precision: str | None = None
    use_cpu: bool | None = None
    num_processes: int | None = None
    num_machines: int | None = None
    machine_rank: int | None = None
    main_process_ip: str | None = None
    main_process_port: int | None = None
    gpu_ids: str | None = None
    gradient_accumulation_steps: int | None = None
    num_cpu_threads_per_process: int | None = None

    def over(self, other: LaunchConfig) -> LaunchConfig:
        """This one's values, and `other`'s where this one has none."""
        mine, theirs = vars(self), vars(other)
        return LaunchConfig(**{name: theirs[name] if mine[name] is None else mine[name] for name in mine})

    def check(self, source: str) -> None:
        """Raise ConfigError, naming `source`, for a value that is not allowed or not supported in this version."""
        if self.mixed_precision == "fp8":
            raise ConfigError(f"{source}: mixed_precision 'fp8' is not supported in this version; use bf16")
        self._check_choice(source, "mixed_precision", PRECISIONS)
        self._check_choice(source, "distributed_type", DISTRIBUTED_TYPES)
        if self.distributed_type in NOT_YET_TYPES:
            raise ConfigError(
                f"{source}: distributed_type {self.distributed_type} is not supported in this version; use MULTI_GPU, "
                "MULTI_CPU or NO"
            )
        for name, least in (
            ("num_processes", 1),
            ("num_machines", 1),
            ("machine_rank", 0),
            ("main_process_port", 0),
            ("gradient_accumulation_steps", 1),
            ("num_cpu_threads_per_process", 1),
        ):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ConfigError(f"{source}: {name} is {value!r}; it must be a whole number, {least} or more")
        if self.use_cpu is not None and not isinstance(self.use_cpu, bool):
            raise ConfigError(f"{source}: use_cpu is {self.use_cpu!r}; it must be true or false")

    def _check_choice(self, source: str, name: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if value is not None and value not in allowed:
            raise ConfigError(f"{source}: {name} is {value!r}; allowed are {', '.join(allowed)}")


FILE_KEYS = {field.name for field in fields(LaunchConfig)} - {
    "gradient_accumulation_steps",
    "num_cpu_threads_per_process",
}


def read_config(path: Path) -> LaunchConfig:
    """A launch config from a YAML (or JSON) file.

    Raises:
        ConfigError: it cannot be read, has an unknown key, or asks for what this version does not do.
    """
    import yaml

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"config file {path}: {reason}") from None
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        where = f", line {place.line + 1}" if place is not None else ""
        raise ConfigError(f"config file {path}{where}: not YAML: {getattr(error, 'problem', error)}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"config file {path}: expected keys and values, found {type(raw).__name__}")
    source = f"config file {path}"
    unknown = sorted(str(key) for key in raw if key not in FILE_KEYS and key not in NOT_YET_KEYS)
    if unknown:
        raise ConfigError(f"{source}: unknown key{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}")
    for key, harmless in NOT_YET_KEYS.items():
        if key in raw and raw[key] not in harmless:
            raise ConfigError(f"{source}: {key}: {raw[key]!r} is not supported in this version; leave it out")
    return _from_file(raw, source)


def _from_file(raw: dict[str, Any], source: str) -> LaunchConfig:
    values = {key: value for key, value in raw.items() if key in FILE_KEYS}
    if values.get("num_processes") == -1:  # "must be given on the command line"
        values["num_processes"] = None
    if values.get("mixed_precision") is False:  # YAML 1.1 reads a bare `no` so
        values["mixed_precision"] = "no"
    if values.get("distributed_type") is False:
        values["distributed_type"] = "NO"
    for key in ("gpu_ids", "main_process_ip"):
        if values.get(key) is not None:
            values[key] = str(values[key])
    config = LaunchConfig(**values)
    config.check(source)
    return config


@dataclass(frozen=True)
class LaunchPlan:
    """A launch with every value decided."""

    processes: int
    """On this machine."""
    machines: int
    machine_rank: int
    address: str | None
    """Where the machines meet; None on one machine."""
    port: int
    """0 is any free one."""
    environment: dict[str, str]
    """What the script's processes get beside our own environment."""


def resolve(config: LaunchConfig, device_count: Any) -> LaunchPlan:
    """Decide what is open, and check that the parts fit.

    Args:
        device_count: called where the number of processes depends on the devices here.
    """
    cpu = bool(config.use_cpu) or config.distributed_type == "MULTI_CPU"
    machines, rank = config.num_machines or 1, config.machine_rank or 0
    if rank >= machines:
        raise ConfigError(f"machine_rank is {rank}, but num_machines is {machines}: ranks count from 0")
    total = config.num_processes
    if total is None:
        local = 1 if cpu or config.distributed_type == "NO" else _wanted_devices(config.gpu_ids, device_count)
        total = local * machines
    if total % machines:
        raise ConfigError(f"num_processes is {total}, which {machines} machines cannot share evenly")
    if machines > 1 and not (config.main_process_ip and config.main_process_port):
        raise ConfigError(f"num_machines is {machines}: say where they meet with main_process_ip and main_process_port")
    return LaunchPlan(
        total // machines,
        machines,
        rank,
        config.main_process_ip if machines > 1 else None,
        config.main_process_port or 0,
        _environment(config, cpu, total // machines),
    )


def _wanted_devices(gpu_ids: str | None, device_count: Any) -> int:
    if gpu_ids and gpu_ids != "all":
        return len([name for name in gpu_ids.split(",") if name.strip()])
    return max(1, int(device_count()))


def _environment(config: LaunchConfig, cpu: bool, local: int) -> dict[str, str]:
    environment: dict[str, str] = {}
    if cpu:
        environment["ACCELERATE_USE_CPU"] = "true"
    if config.mixed_precision is not None:
        environment["ACCELERATE_MIXED_PRECISION"] = config.mixed_precision
    if config.gradient_accumulation_steps is not None:
        environment["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = str(config.gradient_accumulation_steps)
    if config.gpu_ids and config.gpu_ids != "all" and not cpu:
        environment["CUDA_VISIBLE_DEVICES"] = config.gpu_ids
    if config.num_cpu_threads_per_process is not None:
        environment["OMP_NUM_THREADS"] = str(config.num_cpu_threads_per_process)
    elif local > 1 and "OMP_NUM_THREADS" not in os.environ:
        environment["OMP_NUM_THREADS"] = str(max(1, _cores() // local))
    return environment


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""The launch config: its values, what they may be, and where each came from. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..devices import VISIBLE_DEVICES, XLA
from ..vocabulary import DYNAMO_BACKENDS, DYNAMO_MODES, PRECISIONS

NOT_SUPPORTED = ("TPU",)
"""Distributed types that this version does not start."""
_OF_ENGINES = ("FSDP", "DEEPSPEED", "MEGATRON_LM", XLA.spread)
DISTRIBUTED_TYPES = ("NO", "MULTI_CPU", *VISIBLE_DEVICES, *_OF_ENGINES, *NOT_SUPPORTED)
RENDEZVOUS = ("static", "c10d")

_CHOICES = {
    "mixed_precision": PRECISIONS,
    "distributed_type": DISTRIBUTED_TYPES,
    "dynamo_backend": DYNAMO_BACKENDS,
    "dynamo_mode": DYNAMO_MODES,
    "rdzv_backend": RENDEZVOUS,
}
_WHOLE_NUMBERS = {
    "num_processes": 1,
    "num_machines": 1,
    "machine_rank": 0,
    "main_process_port": 0,
    "gradient_accumulation_steps": 1,
    "num_cpu_threads_per_process": 1,
    "max_restarts": 0,
}
_YES_OR_NO = (
    "use_cpu", "debug", "enable_cpu_affinity", "dynamo_use_fullgraph", "dynamo_use_dynamic",
    "dynamo_use_regional_compilation",
)  # fmt: skip


class ConfigError(ValueError):
    """A launch that cannot be: the message is one line, for a person."""


@dataclass
class LaunchConfig:
    """What to start. None is "not said": the next source decides, at last the defaults."""

    distributed_type: str | None = None
    use_cpu: bool | None = None
    mixed_precision: str | None = None
    num_processes: int | None = None
    num_machines: int | None = None
    machine_rank: int | None = None
    main_process_ip: str | None = None
    main_process_port: int | None = None
    gpu_ids: str | None = None
    debug: bool | None = None
    enable_cpu_affinity: bool | None = None
    num_cpu_threads_per_process: int | None = None
    gradient_accumulation_steps: int | None = None
    dynamo_backend: str | None = None
    dynamo_mode: str | None = None
    dynamo_use_fullgraph: bool | None = None
    dynamo_use_dynamic: bool | None = None
    dynamo_use_regional_compilation: bool | None = None
    rdzv_backend: str | None = None
    rdzv_conf: dict[str, str] | None = None
    max_restarts: int | None = None
    monitor_interval: float | None = None
    role: str | None = None
    tee: str | None = None
    log_dir: str | None = None
    engines: dict[str, dict[str, str]] | None = None
    """For each engine that is spoken of (see `engines`), its options."""

    def check(self, source: str) -> None:
        """Raise ConfigError, naming `source`, for a value that is not allowed."""
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise ConfigError(f"{source}: {name} is {value!r}; allowed are {', '.join(allowed)}")
        for name, least in _WHOLE_NUMBERS.items():
            value = getattr(self, name)
            if name == "num_processes" and value == -1:  # to be given on the command line
                continue
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ConfigError(f"{source}: {name} is {value!r}; it must be a whole number, {least} or more")
        for name in _YES_OR_NO:
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise ConfigError(f"{source}: {name} is {value!r}; it must be true or false")
        if self.main_process_port is not None and self.main_process_port > 65535:
            raise ConfigError(f"{source}: main_process_port is {self.main_process_port}; ports end at 65535")
        if self.monitor_interval is not None and self.monitor_interval <= 0:
            raise ConfigError(f"{source}: monitor_interval is {self.monitor_interval!r}; it must be more than 0")
        gpus = self.chosen_gpus or ()
        if not all(gpus) or len(set(gpus)) < len(gpus):
            raise ConfigError(f"{source}: gpu_ids is {self.gpu_ids!r}; give all, or numbers such as 0,2, each once")

    @property
    def chosen_gpus(self) -> list[str] | None:
        """The GPUs that `gpu_ids` names, one by one; None where it leaves all."""
        if self.gpu_ids is None or self.gpu_ids == "all":
            return None
        return [name.strip() for name in self.gpu_ids.split(",")]


@dataclass(frozen=True)
class Settings:
    """A config made of several sources, and where each value that was said comes from ("--cpu", "a.yaml: use_cpu")."""

    config: LaunchConfig
    origins: Mapping[str, str]


_FLAGS = {"use_cpu": "--cpu", "distributed_type": "--multi_gpu"}


def merge(flags: LaunchConfig, file: LaunchConfig | None = None, path: str = "") -> Settings:
    """The flags' values, and the file's where the flags say nothing (its engines only where it may choose one)."""
    merged, origins = LaunchConfig(), {}
    overruled = file is None or flags.distributed_type not in (None, file.distributed_type)
    of_file = {} if overruled or file is None else file.engines or {}
    of_flags = flags.engines or {}
    merged.engines = {name: of_file.get(name, {}) | of_flags.get(name, {}) for name in {**of_file, **of_flags}} or None
    for name in (field.name for field in fields(LaunchConfig) if field.name != "engines"):
        given: Any = getattr(flags, name)
        origin = f"flag {_FLAGS.get(name, f'--{name}')}"
        if given is None and file is not None:
            given, origin = getattr(file, name), f"{path}: {name}"
        if given is not None:
            setattr(merged, name, given)
            origins[name] = origin
    return Settings(merged, origins)

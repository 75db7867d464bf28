"""`accelerate-runtime config`: questions whose answers become a launch config."""

from __future__ import annotations

from pathlib import Path

from rich.prompt import Confirm, IntPrompt, Prompt

from ..vocabulary import DYNAMO_BACKENDS, DYNAMO_MODES, PRECISIONS
from .basic import spread_over_devices
from .config import RENDEZVOUS, ConfigError, LaunchConfig
from .devices import count_devices
from .files import default_path, write_config


def ask_and_write(path: Path | None) -> None:
    """Ask, and write the answers to `path`, or to the default file.

    Raises:
        ConfigError: nobody answers, or an answer cannot be.
    """
    path = path or default_path()
    try:
        if path.exists() and not Confirm.ask(f"{path} is there already. Write it anew?", default=False):
            return
        config = ask()
    except EOFError:
        raise ConfigError(
            "config asks questions, and nobody answers; `accelerate-runtime config default` writes a file unasked"
        ) from None
    config.check("config")
    write_config(path, config)
    print(f"The launch config is in {path}")


def ask() -> LaunchConfig:
    """The questions for what this version can do."""
    config = LaunchConfig()
    devices = count_devices()
    config.use_cpu = _choose("Train on", ("gpu", "cpu"), "gpu" if devices else "cpu") == "cpu"
    machines = config.num_machines = IntPrompt.ask("How many machines", default=1)
    if machines > 1:
        _ask_machines(config)
    here = 1 if config.use_cpu else max(1, devices)
    total = config.num_processes = IntPrompt.ask("How many processes, over all machines", default=here * machines)
    if config.use_cpu:
        config.distributed_type = "MULTI_CPU" if total > 1 else "NO"
    else:
        config.distributed_type = spread_over_devices() if total > 1 else "NO"
        config.gpu_ids = Prompt.ask("Which GPUs of this machine (all, or 0,1,…)", default="all")
        config.enable_cpu_affinity = Confirm.ask("Keep each process near its GPU's memory", default=False)
    _ask_precision_and_compiling(config)
    config.debug = Confirm.ask("Check each collective operation before it runs (slower, for debugging)", default=False)
    return config


def _ask_machines(config: LaunchConfig) -> None:
    config.machine_rank = IntPrompt.ask("This machine's rank, from 0", default=0)
    config.main_process_ip = Prompt.ask("Address of machine 0")
    config.main_process_port = IntPrompt.ask("Port to meet at on machine 0", default=29500)
    config.rdzv_backend = _choose("How they find one another", RENDEZVOUS, "static")


def _ask_precision_and_compiling(config: LaunchConfig) -> None:
    config.mixed_precision = _choose("Mixed precision", PRECISIONS, "no")
    if not Confirm.ask("Compile models with torch.compile", default=False):
        return
    config.dynamo_backend = _choose("Its backend", DYNAMO_BACKENDS[1:], "inductor")
    config.dynamo_mode = _choose("Its mode", DYNAMO_MODES, "default")
    config.dynamo_use_fullgraph = Confirm.ask("Refuse graph breaks", default=False)
    config.dynamo_use_dynamic = Confirm.ask("Compile for changing shapes", default=False)
    config.dynamo_use_regional_compilation = Confirm.ask("Compile a model's repeated blocks once", default=False)


def _choose(question: str, allowed: tuple[str, ...], default: str) -> str:
    return Prompt.ask(question, choices=list(allowed), default=default)

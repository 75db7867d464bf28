"""`accelerate-runtime config`: questions whose answers become a launch config."""

from __future__ import annotations

from collections.abc import Callable
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
    if total > 1:
        _ask_engine(config, total)
    _ask_precision_and_compiling(config)
    config.debug = Confirm.ask("Check each collective operation before it runs (slower, for debugging)", default=False)
    return config


def _ask_machines(config: LaunchConfig) -> None:
    config.machine_rank = IntPrompt.ask("This machine's rank, from 0", default=0)
    config.main_process_ip = Prompt.ask("Address of machine 0")
    config.main_process_port = IntPrompt.ask("Port to meet at on machine 0", default=29500)
    config.rdzv_backend = _choose("How they find one another", RENDEZVOUS, "static")


def _ask_engine(config: LaunchConfig, processes: int) -> None:
    """How the model is spread: by copies, which needs no more, or by an engine."""
    engine = _choose("Each process has (copy: the whole model)", ("copy", *_ENGINES), "copy")
    if engine != "copy":
        name, kind, ask = _ENGINES[engine]
        config.distributed_type = kind or config.distributed_type
        config.engines = {name: ask(processes)}


def _ask_fsdp(_: int) -> dict[str, str]:
    options = {"reshard_after_forward": _said("Free gathered parameters after forward (less memory, slower)", True)}
    wrap = _choose("Gather it by parts", ("transformer", "size", "no"), "transformer")
    options["auto_wrap_policy"] = {"transformer": "TRANSFORMER_BASED_WRAP", "size": "SIZE_BASED_WRAP"}.get(
        wrap, "NO_WRAP"
    )
    if wrap == "transformer":
        classes = Prompt.ask("Classes of the parts, with commas between (empty: found by itself)", default="")
        options |= {"transformer_layer_cls_to_wrap": classes} if classes else {}
    if wrap == "size":
        options["min_num_params"] = str(IntPrompt.ask("Parameters of a part, at least", default=100_000_000))
    options["offload_params"] = _said("Keep parameters in the main memory", False)
    options["activation_checkpointing"] = _said("Compute activations again in backward (less memory, slower)", False)
    options["state_dict_type"] = _choose(
        "Write states", ("SHARDED_STATE_DICT", "FULL_STATE_DICT"), "SHARDED_STATE_DICT"
    )
    return options


def _ask_deepspeed(_: int) -> dict[str, str]:
    file = Prompt.ask("DeepSpeed's own config, JSON (empty: none)", default="")
    if file:
        return {"deepspeed_config_file": file}
    options = {"zero_stage": _choose("ZeRO stage", ("0", "1", "2", "3"), "2")}
    places = ("none", "cpu", "nvme")
    offloaded = ["optimizer"] if options["zero_stage"] != "0" else []
    for what in [*offloaded, *(["param"] if options["zero_stage"] == "3" else [])]:
        place = options[f"offload_{what}_device"] = _choose(f"Offload the {what} to", places, "none")
        if place == "nvme":
            options[f"offload_{what}_nvme_path"] = Prompt.ask("A folder on the disk")
    return options


def _ask_tensor(processes: int) -> dict[str, str]:
    size = IntPrompt.ask("Processes that tensors are split over", default=processes)
    options = {"tp_size": str(size), "tp_sequence_parallel": _said("Split activations along the sequence, too", False)}
    if size > 0 and processes > size:
        options["dp_shard_size"] = str(processes // size)
    return options


def _ask_megatron(processes: int) -> dict[str, str]:
    tensor = IntPrompt.ask("Processes that layers are split over (tp_degree)", default=1)
    stages = IntPrompt.ask("Stages of a pipeline (pp_degree)", default=max(1, processes // max(1, tensor)))
    options = {"tp_degree": str(tensor), "pp_degree": str(stages)}
    if tensor > 1:
        options["sequence_parallelism"] = _said("Split activations along the sequence, too", True)
    if stages > 1:
        options["num_micro_batches"] = str(IntPrompt.ask("Micro-batches of a batch", default=2 * stages))
        options["recompute_activations"] = _said("Compute activations again in backward (less memory, slower)", False)
    options["gradient_clipping"] = Prompt.ask("Clip gradients before each step to the norm (0: no)", default="1.0")
    return options


_ENGINES: dict[str, tuple[str, str | None, Callable[[int], dict[str, str]]]] = {
    "fsdp": ("fsdp", "FSDP", _ask_fsdp),
    "deepspeed": ("deepspeed", "DEEPSPEED", _ask_deepspeed),
    "tensor": ("parallelism_config", None, _ask_tensor),
    "megatron": ("megatron_lm", "MEGATRON_LM", _ask_megatron),
}
"""What may spread a model: the section of its options, its distributed type if it has one, and the questions."""


def _ask_precision_and_compiling(config: LaunchConfig) -> None:
    config.mixed_precision = _choose("Mixed precision", PRECISIONS, "no")
    if not Confirm.ask("Compile models with torch.compile", default=False):
        return
    config.dynamo_backend = _choose("Its backend", DYNAMO_BACKENDS[1:], "inductor")
    config.dynamo_mode = _choose("Its mode", DYNAMO_MODES, "default")
    config.dynamo_use_fullgraph = Confirm.ask("Refuse graph breaks", default=False)
    config.dynamo_use_dynamic = Confirm.ask("Compile for changing shapes", default=False)
    config.dynamo_use_regional_compilation = Confirm.ask("Compile a model's repeated blocks once", default=False)


def _said(question: str, default: bool) -> str:
    return str(Confirm.ask(question, default=default)).lower()


def _choose(question: str, allowed: tuple[str, ...], default: str) -> str:
    return Prompt.ask(question, choices=list(allowed), default=default)

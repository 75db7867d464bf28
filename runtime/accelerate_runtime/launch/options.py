"""The options of `launch`. Parsed by argparse: typer would cost a tenth of the time until a script has torch."""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from typing import Any, NoReturn

from ..devices import XLA
from ..vocabulary import DYNAMO_BACKENDS, DYNAMO_MODES, PRECISIONS
from .config import RENDEZVOUS, ConfigError, LaunchConfig
from .engines import ENGINES

_WAYS = {"use_fsdp": "FSDP", "use_deepspeed": "DEEPSPEED", "use_megatron_lm": "MEGATRON_LM",
         "multi_gpu": "MULTI_GPU", "tpu": XLA.spread}  # fmt: skip
"""Switches of which one says how training is spread, and the distributed types that they mean."""
_ENGINES = {
    "fp8": "a recipe for fp8 on the command line",
    "tpu": "starting processes on TPU pods",
    "no_tpu": "starting processes on TPU pods",
    "vm": "starting processes on TPU pods",
    "env": "starting processes on TPU pods",
    "main_training_function": "starting processes on TPU pods",
    "downcast_bf16": "bfloat16 in place of float32 on TPUs",
    "mpirun": "mpirun",
    "aws": "SageMaker",
}
"""How options of Accelerate's begin that this version does not have, and what they are for."""


@dataclass(frozen=True)
class Request:
    """What the words after `launch` ask for."""

    flags: LaunchConfig
    script: str
    script_args: list[str]
    config_file: str | None
    module: bool
    no_python: bool
    quiet: bool
    dry_run: bool


def parse(words: list[str]) -> Request:
    """The words after `launch`; those from the script on are the script's own.

    Raises:
        ConfigError: they are not what they can be.
    """
    parsed, unknown = _parser().parse_known_args(words)
    for word in unknown:
        _refuse(word)
    for first, second in itertools.combinations(["cpu", *_WAYS], 2):
        if getattr(parsed, first) and getattr(parsed, second) and (first != "cpu" or second in ("multi_gpu", "tpu")):
            raise ConfigError(f"--{first} and --{second} cannot go together")
    if parsed.module and parsed.no_python:
        raise ConfigError("--module and --no_python cannot go together")
    names = set(vars(LaunchConfig()))
    flags = LaunchConfig(
        **{name: value for name, value in vars(parsed).items() if name in names},
        engines=_engines(parsed),
        distributed_type=next((kind for way, kind in _WAYS.items() if getattr(parsed, way)), None),
        use_cpu=True if parsed.cpu else False if parsed.multi_gpu or parsed.tpu else None,
    )
    flags.check("command line")
    if parsed.cpu and flags.chosen_gpus is not None:
        raise ConfigError("--cpu and --gpu_ids cannot go together")
    return Request(
        flags,
        parsed.script,
        parsed.script_args,
        parsed.config_file,
        parsed.module,
        parsed.no_python,
        parsed.quiet,
        parsed.dry_run,
    )


def _engines(parsed: argparse.Namespace) -> dict[str, dict[str, str]] | None:
    """The engines of which a flag speaks, with their options."""
    found = {}
    for name, engine in ENGINES.items():
        flags = [option for option in engine.options if option not in engine.in_files_alone]
        given = {option: getattr(parsed, engine.flag(option)) for option in flags}
        options = {option: value for option, value in given.items() if value is not None}
        if options or getattr(parsed, f"use_{name}"):
            found[name] = options
    return found or None


def _refuse(word: str) -> NoReturn:
    name = word.lstrip("-").partition("=")[0].replace("-", "_").removeprefix("use_")
    for beginning, what in _ENGINES.items():
        if name == beginning or name.startswith(f"{beginning}_"):
            raise ConfigError(
                f"{word}: {what} is not supported in this version, which trains on one process or with "
                "DistributedDataParallel"
            )
    raise ConfigError(f"No such option: {word}; see accelerate-runtime launch --help")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required"):
            message = "no script was given: accelerate-runtime launch [options] SCRIPT [the script's own options]"
        raise ConfigError(message)


class _Help(argparse.HelpFormatter):
    """Shows one spelling of each option."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        spellings = [text for text in action.option_strings if "-" not in text.lstrip("-")]
        value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
        return ", ".join(spellings) + value


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="accelerate-runtime launch",
        usage="accelerate-runtime launch [options] SCRIPT [the script's own options]",
        description="Start SCRIPT on one process or many. A flag wins over the config file. Every --a_b may be written "
        "--a-b.",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("script", metavar="SCRIPT", help="the training script, or with -m a module")
    parser.add_argument("script_args", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    general = parser.add_argument_group("general")
    _add(
        general,
        "config_file",
        "a launch config, YAML or JSON; by default $HF_HOME/accelerate/default_config.yaml, if it is there and --cpu "
        "is not given",
        metavar="FILE",
    )
    _switch(general, "quiet", "say nothing beside what the script says", "-q")
    _switch(general, "module", "SCRIPT is a module, as with python -m", "-m")
    _switch(general, "no_python", "SCRIPT is a program, not a file for Python")
    _switch(general, "debug", "check before each collective operation that it fits on all processes")
    _switch(general, "dry_run", "show what would be started, and where each value comes from; start nothing")
    _add_resources(parser.add_argument_group("what to train on"))
    _add_dynamo(parser.add_argument_group("torch.compile"))
    for engine in ENGINES.values():
        group = parser.add_argument_group(f"with --use_{engine.name}")
        _switch(group, f"use_{engine.name}", f"use {engine.name}; the options below are of it")
        for option, (_, help) in engine.options.items():
            if option not in engine.in_files_alone:
                _add(group, engine.flag(option), help, metavar="VALUE")
    _add_machines(parser.add_argument_group("several machines"))
    _add_watching(parser.add_argument_group("watching the processes"))
    return parser


def _add_resources(group: Any) -> None:
    _switch(group, "cpu", "train on the CPU")
    _switch(group, "multi_gpu", "train on several GPUs, whatever the config file says")
    _switch(group, "tpu", "train on a TPU by torch_xla, in one process that drives all its chips")
    _add(group, "num_processes", "processes over all machines; by default one per GPU", type=int, metavar="N")
    _add(group, "gpu_ids", "GPUs of this machine to use: all, or 0,1,…", metavar="IDS")
    _add(group, "mixed_precision", f"one of {', '.join(PRECISIONS)}", metavar="PRECISION")
    _add(group, "num_cpu_threads_per_process", "threads of each process", type=int, metavar="N")
    _switch(group, "enable_cpu_affinity", "keep each process near its GPU's memory")
    _add(group, "gradient_accumulation_steps", "micro-batches per optimizer step", type=int, metavar="N")


def _add_dynamo(group: Any) -> None:
    _add(group, "dynamo_backend", f"one of {', '.join(DYNAMO_BACKENDS)}", type=str.lower, metavar="BACKEND")
    _add(group, "dynamo_mode", f"one of {', '.join(DYNAMO_MODES)}", metavar="MODE")
    _switch(group, "dynamo_use_fullgraph", "refuse graph breaks")
    _switch(group, "dynamo_use_dynamic", "compile for changing shapes")
    _switch(group, "dynamo_use_regional_compilation", "compile a model's repeated blocks once")


def _add_machines(group: Any) -> None:
    _add(group, "num_machines", "machines that train together", type=int, metavar="N")
    _add(group, "machine_rank", "this machine's rank, from 0", type=int, metavar="RANK")
    _add(group, "main_process_ip", "address of machine 0", metavar="ADDRESS")
    _add(group, "main_process_port", "port to meet at; on one machine a free one by default", type=int, metavar="PORT")
    _add(group, "rdzv_backend", f"how machines find one another: {' or '.join(RENDEZVOUS)}", metavar="BACKEND")
    _add(
        group,
        "rdzv_conf",
        "KEY=VALUE,… for that; timeout=SECONDS is how long machines wait for one another (900)",
        type=_pairs,
        metavar="PAIRS",
    )
    _switch(group, "same_network", "taken, as Accelerate does; nothing depends on it")


def _add_watching(group: Any) -> None:
    _add(group, "max_restarts", "times to start all processes again when one fails (0)", type=int, metavar="N")
    _add(group, "monitor_interval", "seconds between two looks at the processes (0.1)", type=float, metavar="SECONDS")
    _add(
        group,
        "tee",
        "also write to files what the processes show: 1 output, 2 errors, 3 both, or 0:3,1:2 by process",
        "-t",
        metavar="WHAT",
    )
    _add(group, "log_dir", "folder for these files; without --tee, both streams", metavar="FOLDER")
    _add(group, "role", "name of the processes in shown and logged lines", metavar="NAME")


def _add(group: Any, name: str, help: str, *short: str, **kwargs: Any) -> None:
    """An option, spelled with underscores, as Accelerate's, and with dashes."""
    spellings = dict.fromkeys([*short, f"--{name}", f"--{name.replace('_', '-')}"])
    group.add_argument(*spellings, dest=name, help=help.replace("%", "%%"), **kwargs)


def _switch(group: Any, name: str, help: str, *short: str) -> None:
    _add(group, name, help, *short, action="store_const", const=True, default=None)


def _pairs(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if any(not mark or not key.strip() for key, mark, _ in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value,key=value")
    return {key.strip(): value.strip() for key, _, value in pairs}

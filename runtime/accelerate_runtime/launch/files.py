"""Launch configs as files: where the default one is, reading and writing them. The keys are those of Accelerate."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from .config import ConfigError, LaunchConfig
from .engines import ENGINES

# Only TPUs, or nothing at all, would look at these.
_WITHOUT_EFFECT = frozenset(
    ["command_file", "commands", "downcast_bf16", "main_training_function", "same_network", "tpu_env", "tpu_name",
     "tpu_use_cluster", "tpu_use_sudo", "tpu_vm", "tpu_zone"]
)  # fmt: skip
_SECTIONS = {engine.section: engine for engine in ENGINES.values()}
_NOT_SUPPORTED = ("fp8_config", "mpirun_config")
_DYNAMO = "dynamo_config"
_OLD = ("fp16", "dynamo_backend")
_FLAGS_ONLY = frozenset(
    ["gradient_accumulation_steps", "num_cpu_threads_per_process", "rdzv_conf", "max_restarts", "monitor_interval",
     "role", "tee", "log_dir"]
)  # fmt: skip
FILE_KEYS = tuple(
    field.name
    for field in fields(LaunchConfig)
    if field.name not in _FLAGS_ONLY and field.name != "engines" and not field.name.startswith("dynamo_")
)
_KNOWN = frozenset([*FILE_KEYS, *_WITHOUT_EFFECT, *_SECTIONS, *_NOT_SUPPORTED, *_OLD, _DYNAMO, "compute_environment"])


def default_path() -> Path:
    """The config that counts where none is named; Accelerate's own: the files are the same.

    It is accelerate/default_config.yaml in $HF_HOME (by default $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface).
    """
    home = os.environ.get("HF_HOME")
    if home is None:
        home = os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")
    folder = Path(home).expanduser() / "accelerate"
    old = folder / "default_config.json"
    new = folder / "default_config.yaml"
    return old if old.is_file() and not new.is_file() else new


def read_config(path: Path) -> LaunchConfig:
    """A launch config from a YAML or JSON file.

    Raises:
        ConfigError: it cannot be read, has an unknown key, or asks for what this version does not do.
    """
    raw, source = _read_known(path), f"config file {path}"
    for key in _NOT_SUPPORTED:
        if raw.get(key):
            raise ConfigError(f"{source}: {key}: {raw[key]!r} is not supported in this version; leave it out")
    config = LaunchConfig(**_values(raw, source))
    config.check(source)
    return config


def _read_known(path: Path) -> dict[str, Any]:
    """The keys and values of a file, all of them of the schema."""
    raw, source = read_raw(path), f"config file {path}"
    if raw.get("compute_environment") not in (None, "LOCAL_MACHINE"):
        environment = raw["compute_environment"]
        raise ConfigError(f"{source}: compute_environment {environment} is not supported in this version")
    unknown = sorted(str(key) for key in raw if key not in _KNOWN)
    if unknown:
        raise ConfigError(f"{source}: unknown key{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}")
    return raw


def read_raw(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML or JSON file, as they stand there."""
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
    return raw


def _values(raw: dict[str, Any], source: str) -> dict[str, Any]:
    values = {key: raw[key] for key in FILE_KEYS if key in raw}
    if values.get("mixed_precision") is None and raw.get("fp16"):
        values["mixed_precision"] = "fp16"
    for key, word in (("mixed_precision", "no"), ("distributed_type", "NO")):
        if values.get(key) is False:  # YAML 1.1 reads a bare `no` so
            values[key] = word
    for key in ("gpu_ids", "main_process_ip"):
        if values.get(key) is not None:
            values[key] = str(values[key])
    engines = {
        engine.name: engine.read_section(raw[section], source)
        for section, engine in _SECTIONS.items()
        if raw.get(section)
    }
    return values | _dynamo(raw, source) | ({"engines": engines} if engines else {})


def _dynamo(raw: dict[str, Any], source: str) -> dict[str, Any]:
    section = raw.get(_DYNAMO) or {}
    if not isinstance(section, dict):
        raise ConfigError(f"{source}: dynamo_config is {section!r}; it must be keys and values")
    section = {f"dynamo_{str(key).removeprefix('dynamo_')}": value for key, value in section.items()}
    if raw.get("dynamo_backend") is not None:
        section.setdefault("dynamo_backend", raw["dynamo_backend"])
    known = {field.name for field in fields(LaunchConfig)}
    unknown = sorted(key for key in section if key not in known)
    if unknown:
        raise ConfigError(f"{source}: dynamo_config: unknown key {', '.join(unknown)}")
    backend = section.get("dynamo_backend")
    if backend is not None:
        section["dynamo_backend"] = "no" if backend is False else str(backend).lower()
    return section


_BASIS: dict[str, Any] = {
    "compute_environment": "LOCAL_MACHINE",
    "debug": False,
    "distributed_type": "NO",
    "downcast_bf16": "no",
    "enable_cpu_affinity": False,
    "machine_rank": 0,
    "main_training_function": "main",
    "mixed_precision": "no",
    "num_machines": 1,
    "num_processes": 1,
    "rdzv_backend": "static",
    "same_network": True,
    "use_cpu": False,
}


def write_config(path: Path, config: LaunchConfig) -> None:
    """Write a config, whole or not at all, with every key that Accelerate writes too; JSON where the name says so."""
    _write(path, _BASIS | _in_sections(vars(config)))


def update_config(path: Path) -> None:
    """Rewrite a file in today's form: old keys converted, missing ones filled in with their defaults, the rest kept.

    Raises:
        ConfigError: it cannot be read, or has an unknown key.
    """
    raw, source = _read_known(path), f"config file {path}"
    kept = {key: value for key, value in raw.items() if key not in _OLD and key != _DYNAMO and value is not None}
    _write(path, _BASIS | kept | _in_sections(_values(raw, source)))


def _in_sections(values: dict[str, Any]) -> dict[str, Any]:
    """What a config says, as files hold it: a section for each engine, and for torch.compile, where it is used."""
    said = {name: value for name, value in values.items() if value is not None}
    for name, options in said.pop("engines", {}).items():
        engine = ENGINES[name]
        said[engine.section] = {engine.flag(option): value for option, value in options.items()}
    dynamo = {name: said.pop(name) for name in list(said) if name.startswith("dynamo_")}
    if dynamo.get("dynamo_backend", "no") != "no":
        said[_DYNAMO] = dynamo | {"dynamo_backend": dynamo["dynamo_backend"].upper()}
    return said


def _write(path: Path, values: dict[str, Any]) -> None:
    values = dict(sorted(values.items()))
    if path.suffix == ".json":
        import json

        text = json.dumps(values, indent=2) + "\n"
    else:
        import yaml

        text = yaml.safe_dump(values)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)

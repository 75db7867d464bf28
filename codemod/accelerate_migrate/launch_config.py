"""The launch config of a script: what it settled in code, as the YAML that ``launch`` reads.

The keys are those of Accelerate's cluster config, so either launcher takes the file. Each value says where it
comes from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from accelerate_migrate.findings import Target

Value = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Inferred:
    """A value, the line of the script that settles it (``None``: no line does), and what that line does."""

    value: Value
    line: int | None
    why: str


DEFAULTS: Mapping[str, Inferred] = {
    "compute_environment": Inferred("LOCAL_MACHINE", None, "default"),
    "debug": Inferred(False, None, "default; true checks the shapes of collectives"),
    "distributed_type": Inferred("NO", None, "default: one process; MULTI_GPU or MULTI_CPU, with num_processes"),
    "downcast_bf16": Inferred("no", None, "default; TPU only"),
    "enable_cpu_affinity": Inferred(False, None, "default"),
    "gpu_ids": Inferred("all", None, "default"),
    "machine_rank": Inferred(0, None, "default; this machine's number among num_machines"),
    "main_process_ip": Inferred(None, None, "default; needed with several machines"),
    "main_process_port": Inferred(None, None, "default; a free one"),
    "main_training_function": Inferred("main", None, "default; TPU only"),
    "mixed_precision": Inferred("no", None, "default; no, fp16, bf16 or fp8"),
    "num_machines": Inferred(1, None, "default"),
    "num_processes": Inferred(1, None, "default; processes in all, one a GPU"),
    "rdzv_backend": Inferred("static", None, "default"),
    "same_network": Inferred(True, None, "default"),
    "use_cpu": Inferred(False, None, "default; true keeps off the GPU"),
}
"""Every key that is written, in order, with what it is where the script settles nothing: a run on one machine, in one
process, on whatever device is there."""


def render(script_name: str, inferred: Mapping[str, Inferred], target: Target = Target.RUNTIME) -> str:
    """The text of the launch config of a script.

    ``inferred`` holds what the script settles, by key of ``DEFAULTS``; another key is a ``KeyError``, since a launcher
    rejects a file with a key that it doesn't know.
    """
    import jinja2

    unknown = sorted(set(inferred) - set(DEFAULTS))
    if unknown:
        raise KeyError(f"not keys of a launch config: {', '.join(unknown)}")
    rows = []
    for key, default in DEFAULTS.items():
        fact = inferred.get(key, default)
        origin = fact.why if fact.line is None else f"line {fact.line}: {fact.why}"
        rows.append((f"{key}: {_scalar(fact.value)}", " ".join(origin.split())))
    name = os.path.basename(script_name)
    command = "accelerate-runtime" if target is Target.RUNTIME else "accelerate"
    source = files("accelerate_migrate").joinpath("templates").joinpath("launch.yaml.j2").read_text("utf-8")
    template = jinja2.Template(source, trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    text: str = template.render(
        script=_quoted_for_shell(name),
        config=_quoted_for_shell(os.path.splitext(name)[0] + ".launch.yaml"),
        command=f"{command} launch",
        spread="--num_processes 4" if target is Target.RUNTIME else "--multi_gpu --num_processes 4",
        rows=rows,
        has_lines=any(fact.line is not None for fact in inferred.values()),
        width=max(len(setting) for setting, _ in rows),
    )
    return text


def _scalar(value: Value) -> str:
    """A YAML scalar that every YAML reader takes for what it is."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    plain = value.replace("_", "").isalnum() and value.isascii() and value[:1].isalpha()
    ambiguous = value.lower() in {"no", "yes", "on", "off", "true", "false", "null", "y", "n"}
    return value if plain and not ambiguous else "'" + " ".join(value.split()).replace("'", "''") + "'"


def _quoted_for_shell(name: str) -> str:
    import shlex

    return shlex.quote(" ".join(name.encode("utf-8", "replace").decode().split()))

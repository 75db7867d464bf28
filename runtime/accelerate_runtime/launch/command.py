"""`accelerate-runtime launch`: from its words to running processes."""

from __future__ import annotations

import sys
from pathlib import Path

from ..requirements import TORCH_MISSING, torch_is_installed
from .config import ConfigError, Settings, merge
from .devices import count_devices
from .files import default_path, read_config
from .options import Request, parse
from .plan import LaunchPlan, describe, resolve


def launch(words: list[str]) -> int:
    """Do what the words after `launch` ask for; returns the exit code.

    Raises:
        ConfigError: it cannot be done; nothing was started.
    """
    request = parse(words)
    _check_script(request)
    settings = _settings(request)
    if not torch_is_installed():
        raise ConfigError(TORCH_MISSING)
    plan = resolve(settings, count_devices)
    command = _command(request, plan)
    if not request.quiet:
        for warning in plan.warnings:
            sys.stderr.write(f"accelerate-runtime: warning: {warning}\n")
    if request.dry_run:
        _show(settings, plan, command)
        return 0
    from .start import start

    return start(plan, command, request.quiet)


def _settings(request: Request) -> Settings:
    if request.config_file is not None:
        path = Path(request.config_file)
    else:
        path = default_path()
        if request.flags.use_cpu or not path.is_file():
            return merge(request.flags)
    return merge(request.flags, read_config(path), str(path))


def _check_script(request: Request) -> None:
    script = request.script
    if request.no_python:
        import shutil

        if shutil.which(script) is None:
            raise ConfigError(f"program {script} was not found, or may not be executed")
    elif not request.module and not Path(script).is_file():
        what = "is a folder" if Path(script).is_dir() else "does not exist"
        raise ConfigError(f"script {script} {what}")


def _command(request: Request, plan: LaunchPlan) -> list[str]:
    if request.no_python:
        return [request.script, *request.script_args]
    unbuffered = ["-u"] if plan.watched else []  # what a process said before it was killed is not lost
    return [sys.executable, *unbuffered, *(["-m"] if request.module else []), request.script, *request.script_args]


def _show(settings: Settings, plan: LaunchPlan, command: list[str]) -> None:
    import shlex

    where = f" on this machine, rank {plan.machine_rank} of {plan.machines}" if plan.machines > 1 else ""
    print(f"command, in {plan.processes} process{'es' if plan.processes > 1 else ''}{where}:")
    print(f"  {shlex.join(command)}")
    print("environment, beside ours:")
    for name, value in sorted(plan.environment.items()):
        print(f"  {name}={value}")
    if plan.watched:
        print("  and for each process RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT")
    print("values, and where they come from:")
    for name, said, origin in describe(settings, plan):
        print(f"  {name:32} {said:16} {origin}")

"""Starting the script: its only process in our place, several in the care of torch's elastic agent."""

from __future__ import annotations

import os
import sys

from .plan import LaunchPlan

_PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def start(plan: LaunchPlan, command: list[str], quiet: bool = False) -> int:
    """Run `command` (a program and its arguments) as `plan` says; returns the exit code.

    A single process takes our place, so that signals and exit codes are its own.

    Args:
        quiet: say nothing beside what the processes say.

    Raises:
        ConfigError: the machines cannot meet, a port is in use, a file is in the way of the logs.
    """
    os.environ.update(plan.environment)
    if plan.watched:
        from .agent import start_watched

        return start_watched(plan, command, quiet)
    for name in _PLACE:
        os.environ.pop(name, None)
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execvp(command[0], command)
    import subprocess

    return subprocess.run(command).returncode

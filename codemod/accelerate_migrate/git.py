"""What git knows about files: the repository they are in, and whether they hold uncommitted changes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable


class GitUnsure(Exception):
    """Git could not say; the message is its reason."""


def root_of(path: str) -> str | None:
    """The top folder of the repository that holds a path (a real path), by looking for ``.git`` upwards."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    while True:
        if os.path.lexists(os.path.join(folder, ".git")):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def uncommitted(paths: Iterable[str]) -> dict[str, str]:
    """Of some real paths, those that must not be overwritten, each with the reason.

    Tracked files with changes, staged or not. Files outside any repository and untracked files are not git's affair.
    One call of git a repository.
    """
    reasons: dict[str, str] = {}
    by_root: dict[str, list[str]] = {}
    for path in paths:
        root = root_of(path)
        if root is not None:
            by_root.setdefault(root, []).append(path)
    for root, members in by_root.items():
        try:
            changed = _changed_files(root)
        except GitUnsure as unsure:
            reasons.update(dict.fromkeys(members, f"git cannot say whether it has uncommitted changes ({unsure})"))
        else:
            reasons.update(dict.fromkeys(changed.intersection(members), "it has uncommitted changes"))
    return reasons


def _changed_files(root: str) -> set[str]:
    """The real paths of the tracked files of a repository that differ from its last commit."""
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", root]
    command += ["status", "--porcelain=v1", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=all"]
    # Variables such as GIT_DIR, which git sets for its hooks, would answer for another repository.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=120)
    except FileNotFoundError:
        raise GitUnsure("git is not installed") from None
    except subprocess.TimeoutExpired:
        raise GitUnsure("it did not answer in time") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise GitUnsure(said[0])
    entries = [os.fsdecode(entry) for entry in done.stdout.split(b"\0") if entry]
    return {os.path.realpath(os.path.join(root, entry[3:])) for entry in entries}

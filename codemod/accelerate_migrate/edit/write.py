"""Putting results on disk: the files of one program are replaced together, or none is.

Every new text is first written in full beside its file; only then do they take their places, each in one step
(``os.replace``), and where one cannot, those before it are put back. What may not be overwritten is set apart before.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace

from accelerate_migrate.codes import LAUNCH, WRITE, failed, finding, refused
from accelerate_migrate.findings import FileResult, Severity
from accelerate_migrate.git import uncommitted


def settle_launch_configs(results: Sequence[FileResult]) -> list[FileResult]:
    """Leave out each launch config in whose place another one stands: it may hold a person's own values."""
    settled = []
    for result in results:
        path = result.launch_config_path
        if path is not None and result.launch_config is not None and os.path.lexists(path):
            message = f"{path} exists and differs from the one this script would get; it is kept."
            if _read(path) != result.launch_config.encode():
                note = finding(LAUNCH, Severity.NOTE, message)
                result = replace(result, launch_config=None, findings=(*result.findings, note))
        settled.append(result)
    return settled


def write_program(results: Sequence[FileResult], *, respect_git: bool = True) -> list[FileResult]:
    """Write what changed in one program, and the launch configs; the results as they stand afterwards."""
    results = _set_apart(results, respect_git=respect_git)
    contents: dict[str, bytes] = {}
    for result in results:
        if result.after is not None:
            contents[os.path.realpath(result.path)] = result.after
        if result.launch_config_path is not None and result.launch_config is not None:
            contents[result.launch_config_path] = result.launch_config.encode()
    try:
        replace_together(contents)
    except OSError as error:
        message = f"Nothing of this program was written: {error.strerror or error} ({error.filename})."
        return [
            result if result.after is None else failed(result.path, result.before, WRITE, message) for result in results
        ]
    return results


def replace_together(contents: Mapping[str, bytes]) -> None:
    """Give files new contents, all or none; permissions are kept. Raises ``OSError`` with nothing changed."""
    staged: dict[str, str] = {}
    kept: dict[str, str] = {}
    done: list[str] = []
    try:
        for path, data in contents.items():
            staged[path] = _stage(path, data)
        for path in contents:
            if os.path.lexists(path):
                kept[path] = _keep(path)
        for path, temporary in staged.items():
            os.replace(temporary, path)
            done.append(path)
    except BaseException:
        for path in reversed(done):
            with contextlib.suppress(OSError):  # what cannot be put back keeps its second name, and the rest goes on
                if path in kept:
                    os.replace(kept.pop(path), path)
                else:
                    os.unlink(path)
        raise
    finally:
        for leftover in (*staged.values(), *kept.values()):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(leftover)


def _set_apart(results: Sequence[FileResult], *, respect_git: bool) -> list[FileResult]:
    """Refuse what may not be overwritten: read-only files, uncommitted changes, files that changed under our hands."""
    changed = {result.path: os.path.realpath(result.path) for result in results if result.after is not None}
    unsaved = uncommitted(changed.values()) if respect_git and changed else {}
    settled = []
    for result in results:
        real = changed.get(result.path)
        reason = None
        if real is not None:
            reason = _read_only(real)
            if reason is None and real in unsaved:
                reason = f"{unsaved[real]}; commit or stash them, or use --no-respect-git"
            if reason is None and _read(real) != result.before:
                reason = "it changed while the tool was at work; run it again"
        settled.append(
            result if reason is None else refused(result.path, result.before, WRITE, f"Not written: {reason}.")
        )
    return settled


def _read_only(path: str) -> str | None:
    """Why a file may not be replaced. Permission bits are heeded even where this user could ignore them."""
    for place, what in ((path, "it is read-only"), (os.path.dirname(path), "its folder is read-only")):
        try:
            mode = os.stat(place).st_mode
        except OSError as error:
            return error.strerror or str(error)
        if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(place, os.W_OK):
            return what
    return None


def _stage(path: str, data: bytes) -> str:
    """The new contents in a temporary file beside its place, on the disk and with the permissions of the old file."""
    handle, temporary = tempfile.mkstemp(prefix=".accelerate-migrate-", suffix=".tmp", dir=os.path.dirname(path) or ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(path):
            before = os.stat(path)
            with contextlib.suppress(OSError):  # another owner's file in a folder of ours
                os.chown(temporary, before.st_uid, before.st_gid)
            os.chmod(temporary, stat.S_IMODE(before.st_mode))
        else:
            os.chmod(temporary, 0o666 & ~_umask())
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def _keep(path: str) -> str:
    """A second name for a file as it is, to put it back by."""
    handle, name = tempfile.mkstemp(prefix=".accelerate-migrate-", suffix=".old", dir=os.path.dirname(path) or ".")
    os.close(handle)
    os.unlink(name)
    try:
        os.link(path, name)
    except OSError:
        shutil.copy2(path, name)
    return name


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask

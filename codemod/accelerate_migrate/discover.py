"""Which files a run is about: paths, folders and globs become a sorted list of files, each of one program.

Everything that is found is listed in the report, also what ends at the first look at its bytes.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from accelerate_migrate.git import root_of
from accelerate_migrate.ignore import GitIgnore, spec_of
from accelerate_migrate.source import STDIN

SUFFIXES = (".py", ".ipynb")
_MACHINE_FOLDERS = {".git", ".hg", ".svn", "__pycache__", "node_modules", "site-packages", ".tox", ".nox", ".eggs"}
_WORTH_READING = (b"torch", b".cuda", b".backward", b"mkdir", b"makedirs")


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the run.

    ``path`` is as reached from the argument, ``base`` the folder that diffs count from where the file lies outside the
    current one, ``program`` what it belongs to (files of one program are analysed and written together), ``named``
    whether an argument named it. ``data`` is set for standard input only.
    """

    path: str
    base: str
    program: str
    named: bool = False
    data: bytes | None = None


@dataclass(slots=True)
class Discovery:
    """The files of a run, and what was wrong with its arguments (a sentence each)."""

    files: list[Found] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def programs(self) -> list[list[Found]]:
        """The files grouped into programs, in the order of their first files."""
        groups: dict[str, list[Found]] = {}
        for found in self.files:
            groups.setdefault(found.program, []).append(found)
        return list(groups.values())


def worth_reading(data: bytes) -> bool:
    """The first look at a file: can anything in its bytes concern a training program?"""
    return any(word in data for word in _WORTH_READING)


def discover(arguments: Sequence[str], *, exclude: Sequence[str] = (), respect_git: bool = True) -> Discovery:
    """Find the files that some arguments mean: files, folders (searched for Python), globs.

    A folder is one program; a repository (a folder with ``.git``) inside it is one of its own. Files that are named one
    by one belong to the program of their repository, or of the folder they are in.
    """
    result = Discovery()
    excluded = spec_of(list(exclude))
    seen: dict[str, Found] = {}
    for argument in arguments:
        before = len(seen)
        matches = [argument]
        if not os.path.lexists(argument) and glob.has_magic(argument):
            matches = [
                match
                for match in sorted(glob.glob(argument, recursive=True))
                if os.path.isdir(match) or match.endswith(SUFFIXES)
            ]
            if not matches:
                result.problems.append(f"No Python file matches {argument!r}.")
        met = False
        for match in matches:
            for found in _expand(match, respect_git=respect_git):
                met = True
                relative = os.path.relpath(found.path, found.base)
                if not (excluded.match_file(found.path.lstrip("/")) or excluded.match_file(relative)):
                    seen.setdefault(os.path.realpath(found.path), found)
            if not os.path.exists(match):
                result.problems.append(f"There is no file or folder {match!r}.")
                met = True
        if matches and not met:
            left_out = " that .gitignore does not leave out" if respect_git and before == len(seen) else ""
            result.problems.append(f"There is no Python file in {argument!r}{left_out}.")
    result.files = sorted(seen.values(), key=lambda found: found.path.split(os.sep))
    return result


def standard_input(data: bytes) -> Found:
    """The script that came in on standard input, a program of its own."""
    return Found(STDIN, "", STDIN, named=True, data=data)


def _expand(path: str, *, respect_git: bool) -> Iterator[Found]:
    """The files that one existing path means."""
    real = os.path.realpath(path)
    if os.path.isdir(path):
        shown = "" if path in (".", "./") else path
        yield from _walk(_Folder(shown, real, path, real), GitIgnore(path) if respect_git else None, top=True)
    elif os.path.exists(path):
        program = root_of(real) or os.path.dirname(real)
        yield Found(path.removeprefix("./"), os.path.dirname(path), program, named=True)


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder being searched: as reached, in fact, and the base and the program of what is in it."""

    shown: str
    real: str
    base: str
    program: str


def _walk(folder: _Folder, ignore: GitIgnore | None, *, top: bool = False) -> Iterator[Found]:
    """The Python files beneath a folder.

    Links are not followed: what they lead to is either reached by its own name or lies outside the folder.
    """
    try:
        with os.scandir(folder.real) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError:
        return
    names = {entry.name for entry in entries}
    if "pyvenv.cfg" in names and not top:
        return  # a virtual environment
    program = folder.real if ".git" in names else folder.program
    for entry in entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and entry.name in _MACHINE_FOLDERS:
            continue
        if not is_folder and not (entry.name.endswith(SUFFIXES) and entry.is_file(follow_symlinks=False)):
            continue
        if ignore is not None and ignore.ignores(entry.path, is_folder=is_folder):
            continue
        shown = os.path.join(folder.shown, entry.name)
        if is_folder:
            yield from _walk(_Folder(shown, entry.path, folder.base, program), ignore)
        else:
            yield Found(shown, folder.base, program)


def bases(files: Iterable[Found]) -> dict[str, str]:
    """For each path of a run, the folder that a diff of it counts from."""
    return {found.path: found.base for found in files}

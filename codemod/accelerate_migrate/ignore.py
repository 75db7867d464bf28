"""Which paths ``.gitignore`` files leave out, nested ones included, without asking git."""

from __future__ import annotations

import os

from pathspec import GitIgnoreSpec

from accelerate_migrate.git import root_of


class GitIgnore:
    """The ignore files that hold for one folder and everything beneath it.

    Those of the folders above count up to the top of the repository, unless they would leave out the folder itself:
    somebody who names an ignored folder wants it.
    """

    def __init__(self, folder: str) -> None:
        self._specs: dict[str, GitIgnoreSpec | None] = {}
        start = os.path.realpath(folder)
        self._top = root_of(start) or start
        if start != self._top and self.ignores(start, is_folder=True):
            self._top = start

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Whether a real path is left out; the nearest ignore file that has an opinion decides."""
        folder = os.path.dirname(path)
        while folder.startswith(self._top):
            spec = self._spec(folder)
            if spec is not None:
                relative = os.path.relpath(path, folder).replace(os.sep, "/")
                verdict = spec.check_file(relative + "/" * is_folder).include
                if verdict is not None:
                    return verdict
            if folder == self._top or os.path.lexists(os.path.join(folder, ".git")):
                break  # a repository inside another one has its own rules
            folder = os.path.dirname(folder)
        return False

    def _spec(self, folder: str) -> GitIgnoreSpec | None:
        if folder not in self._specs:
            lines = _lines(os.path.join(folder, ".git", "info", "exclude")) + _lines(os.path.join(folder, ".gitignore"))
            self._specs[folder] = spec_of(lines) if lines else None
        return self._specs[folder]


def spec_of(lines: list[str]) -> GitIgnoreSpec:
    """Patterns in the language of ``.gitignore``; like git, a pattern that means nothing matches nothing."""
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:
        return GitIgnoreSpec.from_lines([line for line in lines if _is_pattern(line)])


def _is_pattern(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except OSError:
        return []

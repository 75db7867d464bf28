"""Which scripts of a program belong together because one imports the other, told from their bytes alone.

Only text is looked at here, so that a large repository is split before anything is parsed. A match inside a string does
no harm: it puts two files together that need not be.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from accelerate_migrate.analysis.modules import MAX_NEIGHBOUR_BYTES, import_paths, search_path

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(?P<source>[.\w]+)[ \t]+import[ \t]+(?P<names>\([^)]*\)|[^\n#]*)"
    rb"|import[ \t]+(?P<plain>[^\n#]+))",
    re.MULTILINE,
)
_NAME = re.compile(rb"[A-Za-z_][\w.]*")
MAX_FILES = 150


def components(sources: Mapping[str, bytes], seeds: Sequence[str]) -> list[list[str]]:
    """Groups of files (by absolute path) that import each other; every group holds a seed.

    Of a group of more than ``MAX_FILES`` files each seed stands alone.
    """
    beside: dict[str, bytes] = {}
    imports = {path: _imported(path, data, sources, beside) for path, data in sources.items()}
    importers: dict[str, set[str]] = {path: set() for path in sources}
    for path, found in imports.items():
        for other in found:
            importers[other].add(path)
    done: set[str] = set()
    result: list[list[str]] = []
    for seed in seeds:
        if seed in done:
            continue
        group = {seed}
        queue = [seed]
        while queue:
            current = queue.pop()
            for other in imports[current] | importers[current]:
                if other not in group:
                    group.add(other)
                    queue.append(other)
        done |= group
        if len(group) <= MAX_FILES:
            result.append(sorted(group))
        else:
            result += [[one] for one in seeds if one in group]
    return result


def imported_names(data: bytes) -> set[str]:
    """The last names of the modules that a file may import: ``trainer`` of ``from lib.trainer import Trainer``."""
    return {dotted.rsplit(".", 1)[-1] for dotted, _ in _imports(data)}


def _imported(path: str, data: bytes, sources: Mapping[str, bytes], beside: dict[str, bytes]) -> set[str]:
    """The scripts that a file imports, those behind files on disk that are no scripts of the program included.

    ``beside`` keeps what was read of these.
    """
    found: set[str] = set()
    seen: set[str] = set()
    queue = [(path, data)]
    while queue:
        importer, text = queue.pop()
        further = search_path(text)
        for dotted, level in _imports(text):
            for candidate in import_paths(os.path.dirname(importer), dotted, level, further):
                if candidate in seen:
                    break
                if candidate in sources:
                    seen.add(candidate)
                    found.add(candidate)
                    break
                if candidate in beside or _is_neighbour(candidate):
                    seen.add(candidate)
                    if candidate not in beside:
                        with open(candidate, "rb") as stream:
                            beside[candidate] = stream.read()
                    queue.append((candidate, beside[candidate]))
                    break
    return found - {path}


def _is_neighbour(path: str) -> bool:
    return os.path.isfile(path) and os.path.getsize(path) <= MAX_NEIGHBOUR_BYTES


def _imports(data: bytes) -> Iterator[tuple[str, int]]:
    """The dotted names (and levels) that a file may import: modules, and names that may be modules of a package."""
    for match in _IMPORT.finditer(data):
        if match["plain"] is not None:
            for part in match["plain"].split(b","):
                name = _NAME.match(part.strip())
                if name:
                    yield name[0].decode(), 0
            continue
        source = match["source"].decode("ascii", "replace")
        dotted = source.lstrip(".")
        level = len(source) - len(dotted)
        if dotted:
            yield dotted, level
        for part in match["names"].strip(b"()").split(b","):
            name = _NAME.match(part.strip())
            if name:
                yield ".".join(filter(None, [dotted, name[0].decode()])), level

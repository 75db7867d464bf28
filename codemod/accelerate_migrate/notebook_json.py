"""The JSON of a notebook: where the code of its cells stands in the text, and that text with other code there.

Only the values of changed cells are written anew, in the notebook's own style; every other character stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any

from accelerate_migrate.changes import opcodes
from accelerate_migrate.source import SourceProblem

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell: ``number`` counts all cells from 1; the span is that of the JSON value of its source."""

    number: int
    source: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Document:
    """A notebook as text, its code cells, and its metadata."""

    text: str
    cells: tuple[Cell, ...]
    metadata: Mapping[str, Any]

    @classmethod
    def read(cls, text: str) -> Document:
        """Read a notebook, raising ``SourceProblem`` where this is none, or one of an old format."""
        try:
            return cls._read(text)
        except JSONDecodeError as error:
            line = text.count("\n", 0, error.pos) + 1
            raise SourceProblem(f"This is no notebook: its JSON is broken ({error.msg}, line {line}).", line) from None
        except RecursionError:
            raise SourceProblem("The notebook is nested too deeply to be read.") from None

    @classmethod
    def _read(cls, text: str) -> Document:
        if not text.strip():
            raise SourceProblem("The notebook is an empty file.")
        members, end = _members(text, 0)
        end = _skip(text, end)
        if end < len(text):
            raise JSONDecodeError("Extra data", text, end)
        if "cells" not in members and "worksheets" in members:
            raise SourceProblem("The notebook has format 3; convert it to 4 first (jupyter nbconvert --to notebook).")
        if "cells" not in members or text[members["cells"][0]] != "[":
            raise SourceProblem("This is no notebook: it has no list of cells.")
        metadata = _DECODER.raw_decode(text, members["metadata"][0])[0] if "metadata" in members else {}
        cells = tuple(_code_cells(text, members["cells"][0]))
        return cls(text, cells, metadata if isinstance(metadata, dict) else {})

    @property
    def language(self) -> str:
        """The language of the code: that of the notebook's kernel."""
        for key, name in (("language_info", "name"), ("kernelspec", "language"), ("kernelspec", "name")):
            section = self.metadata.get(key)
            if isinstance(section, dict) and isinstance(section.get(name), str):
                return str(section[name])
        return "python"

    def with_sources(self, sources: Mapping[int, str]) -> str:
        """The text with the code of some cells, by their numbers, exchanged."""
        parts: list[str] = []
        done = 0
        ascii_only = self.text.isascii() and re.search(r"\\u(?!00[0-7])[0-9a-fA-F]{4}", self.text) is not None
        for cell in self.cells:
            new = sources.get(cell.number, cell.source)
            if new != cell.source:
                parts += [self.text[done : cell.start], _value(self.text[cell.start : cell.end], new, ascii_only)]
                done = cell.end
        return "".join([*parts, self.text[done:]])


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def _members(text: str, position: int) -> tuple[dict[str, tuple[int, int]], int]:
    """The object that starts here: the span of each key's value, and where it ends."""
    spans: dict[str, tuple[int, int]] = {}
    position = _skip(text, position)
    if text[position : position + 1] != "{":
        raise JSONDecodeError("Expecting an object", text, position)
    position = _skip(text, position + 1)
    if text[position : position + 1] == "}":
        return spans, position + 1
    while True:
        if text[position : position + 1] != '"':
            raise JSONDecodeError("Expecting property name enclosed in double quotes", text, position)
        key, position = _DECODER.raw_decode(text, position)
        position = _skip(text, position)
        if text[position : position + 1] != ":":
            raise JSONDecodeError("Expecting ':' delimiter", text, position)
        start = _skip(text, position + 1)
        _, end = _DECODER.raw_decode(text, start)
        spans[key] = start, end
        position = _skip(text, end)
        if text[position : position + 1] == "}":
            return spans, position + 1
        if text[position : position + 1] != ",":
            raise JSONDecodeError("Expecting ',' delimiter", text, position)
        position = _skip(text, position + 1)


def _elements(text: str, position: int) -> Iterator[tuple[int, int]]:
    """The spans of the elements of the (valid) array that starts here."""
    position = _skip(text, position + 1)
    while text[position] != "]":
        _, end = _DECODER.raw_decode(text, position)
        yield position, end
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _code_cells(text: str, start: int) -> Iterator[Cell]:
    for number, (first, _) in enumerate(_elements(text, start), 1):
        if text[first] != "{":
            continue
        spans, _ = _members(text, first)
        kind = _DECODER.raw_decode(text, spans["cell_type"][0])[0] if "cell_type" in spans else None
        if kind != "code" or "source" not in spans:
            continue
        value, end = _DECODER.raw_decode(text, spans["source"][0])
        if isinstance(value, list) and all(isinstance(line, str) for line in value):
            value = "".join(value)
        if not isinstance(value, str):
            line = text.count("\n", 0, first) + 1
            raise SourceProblem(f"The source of cell {number} is neither text nor a list of lines.", line)
        yield Cell(number, value, spans["source"][0], end)


def _value(old: str, source: str, ascii_only: bool) -> str:
    """The JSON of a cell's source in the style of what stood there; lines that stay keep their very text."""
    if old.startswith('"'):
        return json.dumps(source, ensure_ascii=ascii_only)
    spans = list(_elements(old, 0))
    raw = [old[start:end] for start, end in spans]
    lines = [json.loads(text) for text in raw]
    new = _split(source)
    texts = [json.dumps(line, ensure_ascii=ascii_only) for line in new]
    for tag, i1, i2, j1, _ in opcodes(_bytes(lines), _bytes(new)):
        if tag == "equal":
            texts[j1 : j1 + i2 - i1] = raw[i1:i2]
    if not texts:
        return "[]"
    opening = old[: spans[0][0]] if spans else "["
    closing = old[spans[-1][1] :] if spans else "]"
    between = old[spans[0][1] : spans[1][0]] if len(spans) > 1 else "," + opening[1:]
    return opening + between.join(texts) + closing


def _bytes(lines: Sequence[str]) -> list[bytes]:
    return [line.encode("utf-8", "surrogatepass") for line in lines]


def _split(source: str) -> list[str]:
    lines = source.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])

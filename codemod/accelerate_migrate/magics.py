"""The lines of a notebook's cell that IPython reads and Python does not: hidden for the pipeline, then put back.

A magic is only a line where a statement can start: ``%d`` that opens a continuation line inside of ``print(...)`` is
an operator. What is hidden becomes a call, as IPython would make one of it, in as many lines: all other code keeps its
place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LINE = re.compile(r"[ \t]*[%!?,;/]")
_HELP = re.compile(r"[ \t]*%{0,2}(?!\d)[\w*]+(?:\.(?!\d)[\w*]+|\[-?\d+\])*\?\??[ \t]*$")
_ASSIGNED = re.compile(r"(?P<target>[ \t]*[^=#'\"%!]*[\w\])][ \t]*=[ \t]*)[%!](?!=)")
_FUTURE = re.compile(r"from\s+__future__\s+import\b")
_CELL = re.compile(r"\s*%%(?P<name>\w+)")
_PYTHON_CELLS = frozenset({"time", "capture", "prun", "debug"})
"""Cell magics whose body is the notebook's own Python, run once, in its own names."""

_RUNS_PYTHON = re.compile(r"[ \t]*%{1,2}[ \t]*(?:time|timeit|prun|lprun|memit|mprun|debug)\b")
_EXPANDED = re.compile(r"\{([^{}]*)\}|\$(\w+)")
_WORD = re.compile(r"[^\W\d]\w*")
_PLACEHOLDER = "get_ipython().hidden_magic"
_PLACEHOLDERS = re.compile(r"get_ipython\(\)\.hidden_magic\((\d+)\n*\)")
_IN_CODE = re.compile(r"#|'''|\"\"\"|['\"]|[\[({]|[\])}]|\\$")


@dataclass(frozen=True, slots=True)
class Magic:
    """Text that Python does not read: the number of its cell, and its line there, from 0."""

    text: str
    cell: int
    line: int
    body: bool = False  # a whole cell that another program, or another namespace, runs

    @property
    def name(self) -> str:
        """What the text begins with: ``%%writefile``, ``!``."""
        match = re.match(r"%{1,2}[ \t]*\w+|.", self.text.lstrip())
        return match[0] if match is not None else ""

    def names(self) -> frozenset[str]:
        """The notebook's own names that the text asks for when it runs."""
        if self.body or _RUNS_PYTHON.match(self.text):
            return frozenset(_WORD.findall(self.text))
        found = (word for match in _EXPANDED.findall(self.text) for part in match for word in _WORD.findall(part))
        return frozenset(found)


@dataclass(slots=True)
class Magics:
    """What is hidden of the cells of one notebook."""

    hidden: list[Magic] = field(default_factory=list)

    def hide(self, source: str, number: int = 0) -> str:
        """The Python of the cell of this number."""
        lines = source.split("\n")
        cell = _CELL.match(source)
        if cell is not None and cell["name"] not in _PYTHON_CELLS:
            return self._hide("", Magic(source, number, 0, body=True))
        scanner = _Scanner()
        result: list[str] = []
        at = 0
        while at < len(lines):
            line, end = lines[at], at + 1
            start = _hidden_from(line) if scanner.at_statement else None
            if start is None:
                scanner.feed(line)
                result.append(line)
            else:
                while lines[end - 1].endswith("\\") and end < len(lines):
                    end += 1
                text = "\n".join(lines[at:end])
                result.append(self._hide(text[:start], Magic(text[start:], number, at)))
            at = end
        return "\n".join(result)

    def _hide(self, before: str, magic: Magic) -> str:
        self.hidden.append(magic)
        lines = "\n" * magic.text.count("\n")
        return f"{before}{_PLACEHOLDER}({len(self.hidden) - 1}{lines})"

    def restore(self, code: str) -> str:
        """Cells with the hidden text back in its place."""
        return _PLACEHOLDERS.sub(lambda match: self.hidden[int(match[1])].text, code)

    def numbers(self, code: str) -> list[int]:
        """Which of the hidden texts stand in this code, in its order."""
        return [int(number) for number in _PLACEHOLDERS.findall(code)]


def is_cell_magic(source: str) -> bool:
    """Whether the first line of a cell says how the others are run."""
    return _CELL.match(source) is not None


def _hidden_from(line: str) -> int | None:
    """Where in a line that starts a statement the text begins that Python does not read, or ``None``."""
    if _LINE.match(line) or _HELP.match(line):
        return len(line) - len(line.lstrip())
    if _FUTURE.match(line) and "(" not in line:
        return 0  # each cell may begin with one, a file only once
    assigned = _ASSIGNED.match(line)
    return assigned.end("target") if assigned is not None else None


class _Scanner:
    """Where statements can start: outside of strings and brackets, and not behind a backslash."""

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""
        self._continued = False

    @property
    def at_statement(self) -> bool:
        return self._depth <= 0 and not self._quote and not self._continued

    def feed(self, line: str) -> None:
        self._continued = False
        position = 0
        while position < len(line):
            if self._quote:
                position = self._skip_string(line, position)
                continue
            match = _IN_CODE.search(line, position)
            if match is None or match[0] == "#":
                return
            position = match.end()
            if match[0] == "\\":
                self._continued = True
            elif match[0][0] in "'\"":
                self._quote = match[0]
            else:
                self._depth += 1 if match[0] in "([{" else -1

    def _skip_string(self, line: str, position: int) -> int:
        """Go on behind the string that is open here, or to the end of the line."""
        while position < len(line):
            if line[position] == "\\":
                position += 2
                continue
            if line.startswith(self._quote, position):
                position += len(self._quote)
                self._quote = ""
                return position
            position += 1
        if len(self._quote) == 1 and not line.endswith("\\"):
            self._quote = ""  # it was never closed: the parser says so
        return position

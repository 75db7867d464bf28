"""One notebook as a script: its code cells are one module, and what becomes of that module goes back into them.

The pipeline sees a plain ``Script``: a marker, a line of its own, before each cell, and the lines that only IPython
reads hidden. Its result is told here in terms of the notebook: the file's bytes with the source of the changed cells
exchanged, and findings whose lines count over the code cells, one below the other.
"""

from __future__ import annotations

import ast
import codecs
import re
import symtable
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from accelerate_migrate.analysis.modules import parse_quietly
from accelerate_migrate.codes import INTERNAL, NOTEBOOK, SOURCE, Code, failed, finding, refused
from accelerate_migrate.findings import CellCode, FileResult, Finding, Severity, Status
from accelerate_migrate.magics import Magics, is_cell_magic
from accelerate_migrate.notebook_json import Document
from accelerate_migrate.source import Script, SourceProblem

_MARKER = "pass  # ----- cell {} -----"
_MARKERS = re.compile(r"^pass  # ----- cell (\d+) -----\n", re.MULTILINE)
_LINE = re.compile(r"\b([Ll])ine (\d+)\b")
_OF_TRAINING = re.compile(r"\.cuda\(|\.backward\(|\bDataParallel\(|\bDistributedDataParallel\(|\bGradScaler\(")
_SPREADING = (
    "a notebook trains in one process, and gets no launch config; to train in several, put the training into a script "
    "and start that by the launcher, or into a function and start that by notebook_launcher"
)


@dataclass(frozen=True)
class Notebook:
    """A notebook, and the module that its code cells make together."""

    path: str
    data: bytes
    document: Document
    magics: Magics
    script: Script

    @classmethod
    def read(cls, path: str, data: bytes) -> Notebook:
        """Read a notebook, raising ``SourceProblem`` for what is none, or holds no Python 3."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SourceProblem("The notebook is not utf-8 text.", data.count(b"\n", 0, error.start) + 1) from None
        document = Document.read(text.removeprefix("\ufeff"))
        if "python" not in document.language.lower():
            raise SourceProblem(f"The notebook's code is {document.language}, not Python.")
        magics = Magics()
        parts = []
        windows = _is_windows(document)
        for cell in document.cells:
            code = magics.hide(cell.source.replace("\r\n", "\n") if windows else cell.source, cell.number)
            parts.append(f"{_MARKER.format(cell.number)}\n{code}\n")
        try:
            script = Script(path, "".join(parts).encode("utf-8"))
        except UnicodeEncodeError:
            raise SourceProblem("The code of the notebook holds characters that are no text.") from None
        return cls(path, data, document, magics, script)

    def finished(self, result: FileResult) -> FileResult:
        """What became of the module, told of the notebook."""
        if result.after is not None:
            try:
                return self._migrated(result, result.after.decode("utf-8"))
            except _Entangled as entangled:
                return self._left(NOTEBOOK, f"not migrated: {entangled}", entangled.line)
        problem = self._problem(result)
        if problem is not None:
            return problem
        hidden = self._hidden_training(Severity.NOTE) if result.status is Status.UNCHANGED else []
        findings = (*map(self._placed, result.findings), *hidden)
        cells = self._cells({}) if findings else ()
        return replace(result, before=self.data, findings=findings, cells=cells, encoding="utf-8")

    def _migrated(self, result: FileResult, code: str) -> FileResult:
        lost = _lost_names(self.script.data, code.encode("utf-8"))
        for magic in self.magics.hidden:
            name = min(magic.names() & lost, default=None)
            if name is not None:
                line = self._first_line(magic.cell) + magic.line
                what = magic.text.split("\n", 1)[0].strip()
                raise _Entangled(f"`{what}` uses `{name}`, which changes: write it as Python, or take it out", line)
        sources = self._split(code)
        changed = {cell.number for cell in self.document.cells if sources[cell.number] != cell.source}
        text = self.document.with_sources(sources)
        if [cell.source for cell in Document.read(text).cells] != list(sources.values()):
            message = "The new notebook does not hold the code that it should. This is a fault of ours."
            return failed(self.path, self.data, INTERNAL, message)
        bom = codecs.BOM_UTF8 if self.data.startswith(codecs.BOM_UTF8) else b""
        findings = [self._placed(found) for found in result.findings] + self._hidden_training(Severity.MANUAL)
        findings.append(finding(NOTEBOOK, Severity.NOTE, _SPREADING, self._first_line(min(changed))))
        return replace(
            result,
            before=self.data,
            after=bom + text.encode("utf-8"),
            findings=tuple(sorted(findings, key=lambda found: (found.line, found.column, found.code))),
            launch_config=None,
            cells=self._cells(sources),
            encoding="utf-8",
        )

    # --- from the module to the cells ---------------------------------------------------------------------------------

    def _split(self, code: str) -> dict[int, str]:
        """The new source of each code cell."""
        before, *rest = _MARKERS.split(code)
        numbers = [int(number) for number in rest[::2]]
        hidden = self.magics.numbers(code)
        if numbers != [cell.number for cell in self.document.cells] or hidden != list(range(len(self.magics.hidden))):
            raise _Entangled("the migration would move the borders of cells, or a line that only IPython reads", 1)
        parts = rest[1::2]
        parts[0] = before + parts[0]  # what goes before all else
        sources: dict[int, str] = {}
        windows = _is_windows(self.document)
        for cell, part in zip(self.document.cells, parts, strict=True):
            source = self.magics.restore(_without_gap(part.removesuffix("\n"), cell.source))
            source = source.rstrip("\n") + "\n" * min(_blank_end(cell.source.replace("\r", "")), _blank_end(source))
            sources[cell.number] = source.replace("\n", "\r\n") if windows else source
            if is_cell_magic(cell.source) and not is_cell_magic(source):
                line = self._first_line(cell.number)
                raise _Entangled("something would have to stand above a cell magic; put that into its own cell", line)
        return sources

    # --- from lines of the module to lines of the notebook's code -----------------------------------------------------

    @cached_property
    def _starts(self) -> list[int]:
        """The lines of the module on which the markers stand."""
        starts, line = [], 1
        for cell in self.document.cells:
            starts.append(line)
            line += cell.source.count("\n") + 2
        return starts

    def _first_line(self, number: int) -> int:
        """The first line of a cell, counted over the code of all cells."""
        index = next(i for i, cell in enumerate(self.document.cells) if cell.number == number)
        return self._starts[index] - index

    def _line(self, line: int) -> int:
        """A line of the module, counted over the code of all cells; a marker is the first line of its cell."""
        index = bisect_right(self._starts, line) - 1
        return max(line - index - 1, self._starts[index] - index) if index >= 0 else 1

    def _placed(self, found: Finding) -> Finding:
        return replace(
            found,
            line=self._line(found.line),
            end_line=self._line(found.end_line),
            message=_LINE.sub(self._named, found.message),
        )

    def _named(self, match: re.Match[str]) -> str:
        """The words "line 12" of a message, as a line of a cell."""
        line = int(match[2])
        index = bisect_right(self._starts, line) - 1
        if index < 0:
            return match[0]
        word = "Cell" if match[1] == "L" else "cell"
        return f"{word} {self.document.cells[index].number}, line {max(line - self._starts[index], 1)}"

    def _cells(self, sources: Mapping[int, str]) -> tuple[CellCode, ...]:
        return tuple(
            CellCode(cell.number, self._first_line(cell.number), cell.source, sources.get(cell.number, cell.source))
            for cell in self.document.cells
        )

    # --- what is said of the notebook as such -------------------------------------------------------------------------

    def _left(self, code: Code, message: str, line: int) -> FileResult:
        return replace(refused(self.path, self.data, code, message, line), cells=self._cells({}))

    def _problem(self, result: FileResult) -> FileResult | None:
        """Where the code cannot be read, the cell that is the reason."""
        if result.status is Status.REFUSED and any(found.code == SOURCE.code for found in result.findings):
            for cell in self.document.cells:
                try:
                    Script(self.path, Magics().hide(cell.source).encode("utf-8")).parse()
                except SourceProblem as problem:
                    line = self._first_line(cell.number) + problem.line - 1
                    message = _LINE.sub(rf"\g<0> of cell {cell.number}", problem.message)
                    return self._left(SOURCE, message, line)
        if result.status is Status.ERROR:
            try:
                compile(self.script.data, self.path, "exec", dont_inherit=True)
            except SyntaxError as error:
                message = f"The cells together are no module that Python compiles: {error.msg}."
                return self._left(SOURCE, message, self._line(error.lineno or 1))
        return None

    def _hidden_training(self, severity: Severity) -> list[Finding]:
        """What stands in text that is not read as the notebook's code, and would have to be migrated."""
        found = []
        for magic in self.magics.hidden:
            for number, line in enumerate(magic.text.split("\n")):
                if _OF_TRAINING.search(line):
                    place = self._first_line(magic.cell) + magic.line + number
                    message = f"`{magic.name}` keeps this from being read as code of the notebook; not migrated"
                    found.append(finding(NOTEBOOK, severity, message, place))
        return found


class _Entangled(Exception):
    """The notebook is left whole: something that only IPython reads is in the way. The line counts over the code."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def _is_windows(document: Document) -> bool:
    """Whether all lines of the code end as on Windows."""
    text = "".join(cell.source for cell in document.cells)
    return "\r\n" in text and text.count("\n") == text.count("\r\n")


def _without_gap(new: str, old: str) -> str:
    """A cell without a blank line at its start, put there for the sake of the marker above: it goes behind the line."""
    if not new.startswith("\n") or old.startswith("\n"):
        return new
    first, _, rest = new[1:].partition("\n")
    return f"{first}\n\n{rest}" if rest and not rest.startswith("\n") else new[1:]


def _blank_end(source: str) -> int:
    return len(source) - len(source.rstrip("\n"))


def _lost_names(before: bytes, after: bytes) -> frozenset[str]:
    """The names of a module that are gone, and its functions that take other parameters."""
    old, new = _names(before), _names(after)
    return frozenset(name for name, what in old.items() if new.get(name) != what)


def _names(data: bytes) -> dict[str, str]:
    names = {
        symbol.get_name(): ""
        for symbol in symtable.symtable(data, "<notebook>", "exec").get_symbols()  # type: ignore[arg-type]
        if symbol.is_assigned() or symbol.is_imported()
    }
    tree = parse_quietly(data, "<notebook>")
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return names | {node.name: ast.dump(node.args) for node in functions}

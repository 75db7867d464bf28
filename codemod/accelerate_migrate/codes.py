"""The findings that belong to no rule: what can happen to a file before and after the rules see it."""

from __future__ import annotations

from dataclasses import dataclass

from accelerate_migrate.findings import FileResult, Finding, Severity, Status


@dataclass(frozen=True, slots=True)
class Code:
    """A finding code of the tool itself; it can be explained and listed like a rule."""

    code: str
    name: str
    summary: str
    details: str

    def explain(self) -> str:
        """Markdown, as rules give it."""
        return f"# {self.code} {self.name}\n\n{self.summary}\n\n{self.details}\n"


INTERNAL = Code(
    "AM000",
    "internal",
    "A fault of the tool, contained: the file is untouched and the others go on.",
    "Please report it with the file, or with the lines around the place it names. `--verbose` shows the traceback.",
)
SOURCE = Code(
    "AM001",
    "source",
    "The file cannot be read as Python 3: another language, another version, a syntax error, an odd encoding.",
    "The file is left as it is and the message names the kind of fault and its line. Python 2 has to be ported first\n"
    "(`async` and `await` as names too: `.cuda(async=True)` is `.cuda(non_blocking=True)` since PyTorch 0.4).",
)
WRITE = Code(
    "AM002",
    "write",
    "The file would change but was not written: it is read-only, or holds changes that git has not committed.",
    "All files of one program are replaced together or not at all. Make the file writable, or commit or stash its\n"
    "changes; `--no-respect-git` writes over uncommitted changes.",
)
LAUNCH = Code(
    "AM003",
    "launch-config",
    "A launch config with other contents stands where this script's would go; it was kept.",
    "The tool never overwrites a launch config that differs from what it would write. Remove or rename it to get\n"
    "a new one.",
)
NOTEBOOK = Code(
    "AM004",
    "notebook",
    "What is special about a notebook: its cells run in one process, and some of its lines only IPython reads.",
    "The code cells are read as one script, from top to bottom; magics and shell lines stay as they are. Only the\n"
    "source of changed cells is written: outputs, metadata and the style of the file stay. The lines of findings\n"
    "count over the code of all code cells, one below the other; reports also name the cell (all cells counted, from\n"
    "1) and the line in it. A notebook trains in one process and gets no launch config. To train in several, put the\n"
    "training into a script and start that by the launcher, or into a function for `notebook_launcher`.",
)
UNSUPPORTED = Code(
    "AM900",
    "unsupported",
    "A script that this version cannot migrate safely is left whole, with the reason.",
    "A migration that trains differently without a word is worse than none. Parallelism beyond data parallelism and\n"
    "training whose parts cannot be told for sure are refused, and so are scripts that another framework trains:\n"
    "Lightning, Fabric, the Trainer of transformers, DeepSpeed, Ray, ignite, fastai, Catalyst, and Accelerate itself.\n"
    "Files that train together are left together.",
)
OWN_CODES = (INTERNAL, SOURCE, WRITE, LAUNCH, NOTEBOOK, UNSUPPORTED)


def finding(code: Code, severity: Severity, message: str, line: int = 1) -> Finding:
    """A finding of the tool itself, about a whole line."""
    return Finding(code.code, code.name, severity, line, 1, line, message)


def refused(path: str, data: bytes, code: Code, message: str, line: int = 1) -> FileResult:
    """A file left as it was, and why."""
    return FileResult(path, Status.REFUSED, data, findings=(finding(code, Severity.REFUSED, message, line),))


def failed(path: str, data: bytes, code: Code, message: str) -> FileResult:
    """A file left as it was because something went wrong on our side."""
    return FileResult(path, Status.ERROR, data, findings=(finding(code, Severity.REFUSED, message),))

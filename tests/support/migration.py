"""Migrating small scripts, written as the diff that is expected of them.

A script stands in one string. A line that starts with ``-`` is only in the original, one that starts with ``+`` only in
the result, every other line in both. A line ``! CODE severity: words`` says that the original's line above gets this
finding, with these words in its message::

     for x, y in loader:
    -    loss.backward()
    !    AM130 migrated: accelerator.backward(loss)
    +    accelerator.backward(loss)

Findings that ask something of a person (``review``, ``manual``, ``refused``) must all be written down; ``migrated`` and
``note`` may be. Several strings, each with an indentation of its own, make one script. A program is a table of scripts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from textwrap import dedent

from accelerate_migrate.findings import Checkpoints, FileResult, Finding, Options, Severity, Status, Target
from accelerate_migrate.migrate import migrate_program
from accelerate_migrate.source import Script

IMPORTS = """
     import torch
     import torch.nn.functional as F
    +from accelerate_runtime import Accelerator
     from torch import nn
     from torch.utils.data import DataLoader, TensorDataset

     data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))"""
"""Where a script of these tests usually starts, and the import that every migration adds."""

PREPARED = (
    IMPORTS
    + """
    +accelerator = Accelerator()
     model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    """
)
"""A model, its optimizer and a loader at module level: what most tests begin with."""

TRAINED = """
     for x, y in loader:
         optimizer.zero_grad()
         loss = F.cross_entropy(model(x), y)
    -    loss.backward()
    +    accelerator.backward(loss)
         optimizer.step()
"""
"""A plain training loop over what ``PREPARED`` made."""

ASKING = (Severity.REVIEW, Severity.MANUAL, Severity.REFUSED)
_EXPECTED = re.compile(r"!\s*(?P<code>AM\d{3}) (?P<severity>\w+)(: (?P<words>.*))?$")


@dataclass(frozen=True)
class Expected:
    """A finding that a test asks for."""

    line: int
    code: str
    severity: Severity
    words: str

    def matches(self, finding: Finding) -> bool:
        return (finding.line, finding.code, finding.severity) == (
            self.line,
            self.code,
            self.severity,
        ) and self.words in finding.message


@dataclass
class Sketch:
    """A script before and after, and its findings, as a test writes them down."""

    before: str = ""
    after: str = ""
    expected: list[Expected] = field(default_factory=list)


def sketch(*parts: str) -> Sketch:
    """Read the notation of this module."""
    found = Sketch()
    line = 0
    for part in parts:
        for mark, text in _marked_lines(part):
            if mark == "!":
                match = _EXPECTED.match("!" + text)
                assert match, f"not a finding: {text}"
                severity = Severity(match["severity"])
                found.expected.append(Expected(line, match["code"], severity, match["words"] or ""))
                continue
            if mark != "+":
                found.before += text + "\n"
                line += 1
            if mark != "-":
                found.after += text + "\n"
    return found


def _marked_lines(part: str) -> list[tuple[str, str]]:
    lines = dedent(part).strip("\n").rstrip().split("\n")
    if not any(text[:1] in ("+", "-", "!") for text in lines):
        return [(" ", text) for text in lines]
    assert all(text[:1] in ("+", "-", "!", " ", "") for text in lines), "a line without a column for its mark"
    return [(text[:1] or " ", text[1:]) for text in lines]


def migrate(
    source: str | bytes,
    *,
    target: Target = Target.RUNTIME,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    path: str = "train.py",
    checkpoints: Checkpoints = Checkpoints.KEEP,
) -> FileResult:
    """The tool's result for one script."""
    data = source.encode() if isinstance(source, str) else source
    return migrate_program([Script(path, data)], Options(target, tuple(select), tuple(ignore), checkpoints))[0]


def migrated(source: str, *, target: Target = Target.RUNTIME, ignore: Sequence[str] = ()) -> str:
    """The text of a script after its migration."""
    result = migrate(source, target=target, ignore=ignore)
    assert result.status is Status.MIGRATED, result.findings
    return result.text_after()


def check_migrated(
    *parts: str,
    target: Target = Target.RUNTIME,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    path: str = "train.py",
    checkpoints: Checkpoints = Checkpoints.KEEP,
) -> None:
    """The script becomes what its marked lines say, and a second run changes nothing; ``path`` tells its neighbours."""
    wanted = sketch(*parts)
    assert wanted.after != wanted.before, "nothing is marked as changed: check_unchanged says that"
    ast.parse(wanted.before)
    options = Options(target, tuple(select), tuple(ignore), checkpoints)
    result = migrate_program([Script(path, wanted.before.encode())], options)[0]
    assert result.status is Status.MIGRATED, result.findings
    assert result.text_after() == wanted.after, difference(wanted.after, result.text_after())
    _check_findings(wanted, result, [f for f in result.findings if f.severity in ASKING])
    again = migrate_program([Script(path, result.text_after().encode())], options)[0]
    assert (again.status, again.after) == (Status.UNCHANGED, None)


def check_program(files: Mapping[str, str | Sequence[str]], *, target: Target = Target.RUNTIME) -> None:
    """Every file becomes what its marked lines say, or stays as it is, and a second run changes none of them."""
    wanted = {path: sketch(*([text] if isinstance(text, str) else text)) for path, text in files.items()}
    results = migrate_files({path: each.before for path, each in wanted.items()}, target=target)
    for path, each in wanted.items():
        result = results[path]
        ast.parse(each.before)
        if each.after == each.before:
            refused = any(expected.severity is Severity.REFUSED for expected in each.expected)
            status = Status.REFUSED if refused else Status.UNCHANGED
            assert (result.status, result.after) == (status, None), (path, result.findings, result.text_after())
        else:
            assert result.status is Status.MIGRATED, (path, result.findings)
            assert result.text_after() == each.after, path + difference(each.after, result.text_after())
        _check_findings(each, result, [f for f in result.findings if f.severity in ASKING])
    again = migrate_files({path: result.text_after() for path, result in results.items()}, target=target)
    assert {path: result.after for path, result in again.items()} == dict.fromkeys(wanted)


def migrate_files(sources: Mapping[str, str], *, target: Target = Target.RUNTIME) -> dict[str, FileResult]:
    """The tool's results for the files of one program."""
    scripts = [Script(path, source.encode()) for path, source in sources.items()]
    return dict(zip(sources, migrate_program(scripts, Options(target)), strict=True))


def check_unchanged(*parts: str) -> None:
    """Nothing in the script is the tool's business; every finding is written down."""
    wanted = sketch(*parts)
    assert wanted.after == wanted.before, "a line is marked as changed"
    result = migrate(wanted.before)
    assert (result.status, result.after) == (Status.UNCHANGED, None), result.text_after()
    _check_findings(wanted, result, result.findings)


def check_refused(*parts: str) -> None:
    """The script is left whole, for the one reason that is written down."""
    wanted = sketch(*parts)
    ast.parse(wanted.before)
    assert wanted.after == wanted.before, "a line is marked as changed"
    assert [e.severity for e in wanted.expected] == [Severity.REFUSED]
    result = migrate(wanted.before)
    assert (result.status, result.after) == (Status.REFUSED, None), result.text_after()
    _check_findings(wanted, result, result.findings)


def difference(wanted: str, found: str) -> str:
    """What distinguishes two texts, to read in a failing test."""
    return "\n" + "\n".join(unified_diff(wanted.split("\n"), found.split("\n"), "wanted", "found", lineterm=""))


def _check_findings(wanted: Sketch, result: FileResult, accounted: Sequence[Finding]) -> None:
    said = [f"{f.line} {f.code} {f.severity.value}: {f.message}" for f in result.findings]
    for expected in wanted.expected:
        assert any(expected.matches(f) for f in result.findings), f"{expected} is not among {said}"
    for finding in accounted:
        assert any(e.matches(finding) for e in wanted.expected), f"not written down: {finding}"

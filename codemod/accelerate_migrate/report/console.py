"""The report for a person at a terminal: the diff, the findings and a summary."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from accelerate_migrate.findings import FileResult, Finding, Severity, Status
from accelerate_migrate.report import Report, View
from accelerate_migrate.report.diff import of_cells, unified

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

NAME = "rich"

_VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) != "\t"} | {0x7F: 0x2421}
"""Control characters as pictures: a script must not steer the terminal that shows it."""

_SEVERITY = {
    Severity.MIGRATED: "green",
    Severity.REVIEW: "yellow",
    Severity.MANUAL: "magenta",
    Severity.NOTE: "cyan",
    Severity.REFUSED: "red",
}
_STATUS = {Status.MIGRATED: "green", Status.UNCHANGED: "dim", Status.REFUSED: "red", Status.ERROR: "bold red"}


def render(report: Report, view: View) -> bytes:
    """Text for a terminal: coloured where ``view`` says so, plain otherwise."""
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(
        file=out,
        width=view.width,
        force_terminal=view.colour,
        color_system="standard" if view.colour else None,
        no_color=not view.colour,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )
    for result in report.results:
        _show(console, result, view)
    if any(result.status is not Status.UNCHANGED or result.findings for result in report.results):
        _counts(console, report)
    if report.results:
        console.print(Text(_last_line(report), "bold"))
    return out.getvalue().encode("utf-8", "surrogateescape")


def _show(console: Console, result: FileResult, view: View) -> None:
    from rich.text import Text

    findings = [finding for finding in result.findings if _wanted(finding, view)]
    if result.status is Status.UNCHANGED and not findings and result.launch_config is None and not view.verbose:
        return
    added, removed = result.line_counts()
    title = Text.assemble(
        (result.path, "bold"), "  ", (result.status.value, _STATUS[result.status]), no_wrap=True, overflow="ignore"
    )
    if result.after is not None:
        title.append(f"  +{added} -{removed}", "dim")
    console.print(title)
    if not view.quiet:
        diff = of_cells(result) if result.cells else b"".join(unified(result).splitlines(keepends=True)[2:])
        for line in diff.decode(result.encoding, "surrogateescape").split("\n")[:-1]:
            console.print(_diff_line(line))
        if diff and findings:
            console.print()
    places = {finding: f"{result.path}:{result.place(finding.line, finding.column)}:" for finding in findings}
    width = max(map(len, places.values()), default=0)
    for finding in sorted(findings, key=lambda finding: (finding.line, finding.column)):
        console.print(_finding_line(places[finding].ljust(width), finding))
    if result.launch_config_path is not None:
        console.print(Text.assemble("launch config: ", (result.launch_config_path, "bold")))
    console.print()


def _wanted(finding: Finding, view: View) -> bool:
    """Quiet keeps what a person has to act on."""
    return not view.quiet or finding.severity in (Severity.REVIEW, Severity.MANUAL, Severity.REFUSED)


def _diff_line(line: str) -> Text:
    from rich.text import Text

    style = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}.get(line[:1], "")
    return Text(line.rstrip("\r").translate(_VISIBLE), style)


def _finding_line(place: str, finding: Finding) -> Text:
    from rich.text import Text

    style = _SEVERITY[finding.severity]
    return Text.assemble(
        place,
        " ",
        (finding.code, "bold"),
        " ",
        (f"{finding.severity.value:8}", style),
        " ",
        finding.message.translate(_VISIBLE),
    )


def _counts(console: Console, report: Report) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("files")
    table.add_column("", justify="right")
    table.add_column("findings")
    table.add_column("", justify="right")
    left = [(status.value, report.count(status), _STATUS[status]) for status in Status]
    right = [(severity.value, report.count_findings(severity), _SEVERITY[severity]) for severity in Severity]
    for number in range(max(len(left), len(right))):
        cells = []
        for side in (left, right):
            name, count, style = side[number] if number < len(side) else ("", 0, "")
            cells += [Text(name, style if count else "dim"), Text(str(count) if name else "", "" if count else "dim")]
        table.add_row(*cells)
    console.print(table)
    console.print()


def _last_line(report: Report) -> str:
    changed = report.count(Status.MIGRATED)
    kept = report.count(Status.REFUSED)
    refused = f" {_files(kept)} refused: see the finding." if kept else ""
    if not changed:
        others = len(report.results) - kept
        return (f"Nothing to migrate in {_files(others)}." if others else "Nothing was migrated.") + refused
    if report.wrote:
        return f"Migrated {_files(changed)}.{refused}"
    return f"{_files(changed)} would change; nothing is written without --write.{refused}"


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"

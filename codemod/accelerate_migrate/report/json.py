"""The report for programs."""

from __future__ import annotations

import json
from typing import Any

from accelerate_migrate.findings import FileResult, Finding, Severity, Status
from accelerate_migrate.report import Report, View

NAME = "json"
VERSION = 1
_COUNTED = (Severity.MIGRATED, Severity.REVIEW, Severity.MANUAL)


def render(report: Report, view: View) -> bytes:
    """One JSON object; every file that was considered is in it."""
    document = {
        "version": VERSION,
        "tool": report.tool,
        "target": report.target.value,
        "files": [_file(result) for result in report.results],
        "summary": {
            **{status.value: report.count(status) for status in Status},
            "findings": {severity.value: report.count_findings(severity) for severity in _COUNTED},
        },
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    # A file name may hold bytes that are no text; they become JSON's own escapes of lone surrogates.
    return text.encode("utf-8", "backslashreplace")


def _file(result: FileResult) -> dict[str, Any]:
    added, removed = result.line_counts()
    return {
        "path": result.path,
        "status": result.status.value,
        "added": added,
        "removed": removed,
        "launch_config": result.launch_config_path,
        "findings": [
            {
                "code": finding.code,
                "rule": finding.rule,
                "severity": finding.severity.value,
                "line": finding.line,
                "column": finding.column,
                "end_line": finding.end_line,
                "message": finding.message,
                **_cell(result, finding),
            }
            for finding in result.findings
        ],
    }


def _cell(result: FileResult, finding: Finding) -> dict[str, int]:
    """The cell of a notebook's finding, and its line there."""
    cell = result.cell_of(finding.line)
    return {} if cell is None else {"cell": cell.number, "cell_line": finding.line - cell.line + 1}

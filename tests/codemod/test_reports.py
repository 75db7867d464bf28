"""The reports: for a person, for git and for programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from accelerate_migrate.findings import FileResult, Finding, Severity, Status, Target
from accelerate_migrate.report import Report, View, formats

from .conftest import git

OLD = b"import torch\nx = 1\nloss.backward()\n"
NEW = b"import torch\nx = 1\naccelerator.backward(loss)\n"
FINDING = Finding("AM130", "backward", Severity.MIGRATED, 3, 1, 3, "loss.backward() -> accelerator.backward(loss)")
MANUAL = Finding("AM180", "leftover", Severity.MANUAL, 2, 5, 2, "Look.")
REFUSED = Finding("AM001", "source", Severity.REFUSED, 7, 1, 7, "Line 7 is Python 2.")
RESULTS = (
    FileResult("src/old.py", Status.REFUSED, b"print 1\n", findings=(REFUSED,)),
    FileResult("src/plain.py", Status.UNCHANGED, b""),
    FileResult("src/train.py", Status.MIGRATED, OLD, NEW, (FINDING, MANUAL), "x: 1\n"),
)


def render(name: str, *results: FileResult, view: View | None = None, **more: object) -> bytes:
    report = Report("accelerate-migrate 0.1.0", Target.RUNTIME, results, **more)  # type: ignore[arg-type]
    return formats()[name].render(report, view or View())


def test_a_format_is_a_module() -> None:
    assert sorted(formats()) == ["diff", "json", "rich"]


class TestJson:
    def test_the_whole_document(self) -> None:
        assert json.loads(render("json", *RESULTS)) == {
            "version": 1,
            "tool": "accelerate-migrate 0.1.0",
            "target": "runtime",
            "files": [
                {
                    "path": "src/old.py",
                    "status": "refused",
                    "added": 0,
                    "removed": 0,
                    "launch_config": None,
                    "findings": [
                        {
                            "code": "AM001",
                            "rule": "source",
                            "severity": "refused",
                            "line": 7,
                            "column": 1,
                            "end_line": 7,
                            "message": "Line 7 is Python 2.",
                        }
                    ],
                },
                {
                    "path": "src/plain.py",
                    "status": "unchanged",
                    "added": 0,
                    "removed": 0,
                    "launch_config": None,
                    "findings": [],
                },
                {
                    "path": "src/train.py",
                    "status": "migrated",
                    "added": 1,
                    "removed": 1,
                    "launch_config": "src/train.launch.yaml",
                    "findings": [
                        {
                            "code": "AM130",
                            "rule": "backward",
                            "severity": "migrated",
                            "line": 3,
                            "column": 1,
                            "end_line": 3,
                            "message": "loss.backward() -> accelerator.backward(loss)",
                        },
                        {
                            "code": "AM180",
                            "rule": "leftover",
                            "severity": "manual",
                            "line": 2,
                            "column": 5,
                            "end_line": 2,
                            "message": "Look.",
                        },
                    ],
                },
            ],
            "summary": {
                "migrated": 1,
                "unchanged": 1,
                "refused": 1,
                "error": 0,
                "findings": {"migrated": 1, "review": 0, "manual": 1},
            },
        }

    def test_a_file_name_that_is_no_text(self) -> None:
        name = os.fsdecode(b"caf\xe9 \xc3\xa9.py")
        data = render("json", FileResult(name, Status.UNCHANGED, b""))
        assert os.fsencode(json.loads(data)["files"][0]["path"]) == b"caf\xe9 \xc3\xa9.py"
        data.decode("utf-8")


VERSIONS = {
    "plain": (OLD, NEW),
    "from nothing": (b"", b"x\n"),
    "to nothing": (b"x\n", b""),
    "no final newline": (b"a\nb", b"a\nc"),
    "gains a final newline": (b"a\nb", b"a\nb\n"),
    "loses its final newline": (b"a\nb\n", b"a\nb"),
    "CRLF": (b"a\r\nb\r\n", b"a\r\nc\r\n"),
    "old Mac": (b"a\rb\r", b"a\rc\r"),
    "BOM": (b"\xef\xbb\xbfa\n", b"\xef\xbb\xbfb\n"),
    "no utf-8": (b"# coding: latin-1\n# \xe9\nx\n# \xe8\n", b"# coding: latin-1\n# \xe9\ny\n# \xe8\n"),
    "form feeds and other separators": ("a\x0cb\u2028c\nx\n".encode(), "a\x0cb\u2028c\ny\n".encode()),
    "lines like a header": (b"-- a\n++ b\nx\n", b"-- a\n++ c\nx\n"),
    "several hunks": (b"".join(b"%d\n" % i for i in range(99)), b"".join(b"%d\n" % (i // 20 * 20) for i in range(99))),
    "trailing spaces": (b"a  \n", b"b\t\n"),
}


class TestDiff:
    @pytest.mark.parametrize("name", VERSIONS)
    @pytest.mark.parametrize("path", ["train.py", "src/a b.py", 'src/é"\\.py', "src/tab\t.py"])
    def test_git_applies_it_byte_for_byte(self, folder: Path, name: str, path: str) -> None:
        before, after = VERSIONS[name]
        os.makedirs("src")
        Path(path).write_bytes(before)
        patch = render("diff", FileResult(path, Status.MIGRATED, before, after))
        if after:  # without its `diff --git` line, a patch that empties a file deletes it
            subprocess.run(["git", "apply", "-"], input=patch, check=True, capture_output=True)
            assert Path(path).read_bytes() == after

    def test_it_counts_from_the_current_folder_also_within_a_repository(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        git("init", "-q")
        os.makedirs("deep/src")
        Path("deep/src/train.py").write_bytes(OLD)
        monkeypatch.chdir("deep")
        for path in ("src/train.py", os.path.abspath("src/train.py")):
            patch = render("diff", FileResult(path, Status.MIGRATED, OLD, NEW))
            assert patch.startswith(b"--- a/src/train.py\n+++ b/src/train.py\n@@ -1,3 +1,3 @@\n import torch\n")
            Path("src/train.py").write_bytes(OLD)
            subprocess.run(["git", "apply", "-"], input=patch, check=True)
            assert Path("src/train.py").read_bytes() == NEW

    def test_a_file_elsewhere_counts_from_the_argument(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        base = str(tmp_path_factory.mktemp("elsewhere"))
        path = f"{base}/src/train.py"
        patch = render("diff", FileResult(path, Status.MIGRATED, OLD, NEW), bases={path: base})
        assert patch.startswith(b"--- a/src/train.py\n+++ b/src/train.py\n")

    def test_files_that_stay_are_not_in_it(self) -> None:
        assert render("diff", *RESULTS[:2]) == b""

    def test_standard_input(self) -> None:
        assert render("diff", FileResult("<stdin>", Status.MIGRATED, OLD, NEW)).startswith(b"--- a/<stdin>\n")


class TestConsole:
    def test_what_a_person_reads(self) -> None:
        text = render("rich", *RESULTS).decode()
        assert "src/train.py  migrated  +1 -1\n" in text
        assert "\n-loss.backward()\n+accelerator.backward(loss)\n" in text
        assert "\n\nsrc/train.py:2:5: AM180 manual   Look.\nsrc/train.py:3:1: AM130 migrated loss" in text
        assert "src/old.py:7:1: AM001 refused  Line 7 is Python 2.\n" in text
        assert "src/train.launch.yaml" in text
        assert "src/plain.py" not in text
        assert re.search(r"migrated +1 +migrated +1\n", text)
        assert text.endswith("nothing is written without --write. 1 file refused: see the finding.\n")
        assert "\x1b" not in text

    def test_the_last_line_says_what_was_done(self) -> None:
        assert render("rich", *RESULTS, wrote=True).endswith(b"Migrated 1 file. 1 file refused: see the finding.\n")
        assert render("rich", RESULTS[1]) == b"Nothing to migrate in 1 file.\n"
        assert render("rich") == b""

    def test_colour_only_where_asked(self) -> None:
        text = render("rich", *RESULTS, view=View(colour=True)).decode()
        assert "\x1b[32m+accelerator.backward(loss)\x1b[0m" in text

    def test_quiet_keeps_what_a_person_has_to_act_on(self) -> None:
        text = render("rich", *RESULTS, view=View(quiet=True)).decode()
        assert "AM180" in text
        assert "AM001" in text
        assert "AM130" not in text
        assert "+accelerator" not in text

    def test_verbose_lists_what_stays(self) -> None:
        assert b"src/plain.py  unchanged" in render("rich", *RESULTS, view=View(verbose=True))

    def test_text_is_neither_markup_nor_steers_the_terminal(self) -> None:
        new = b"x = '[bold]:smile:'  # \x1b[2J\x07\n"
        text = render("rich", FileResult("t[red].py", Status.MIGRATED, b"x\n", new)).decode()
        assert "+x = '[bold]:smile:'  # \u241b[2J\u2407\n" in text
        assert "t[red].py" in text

    def test_long_lines_stay_whole_and_odd_bytes_pass(self) -> None:
        new = b"# " + b"x" * 300 + b" \xff\n"
        assert b"+" + new in render("rich", FileResult("a.py", Status.MIGRATED, b"x\n", new), view=View(width=40))

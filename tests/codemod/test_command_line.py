"""The command as a person, a CI job or an editor calls it."""

from __future__ import annotations

import codecs
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from accelerate_migrate.findings import FileResult, Options
from accelerate_migrate.source import Script

from .conftest import MIGRATED, SCRIPT, Outcome, Tool, commit_all, git, stub_migration

pytestmark = pytest.mark.usefixtures("stub")


def report(outcome: Outcome) -> dict[str, dict[str, object]]:
    """The files of a JSON report by path."""
    return {file["path"]: file for file in json.loads(outcome.out)["files"]}


@pytest.fixture
def train(folder: Path) -> Path:
    """One script in the current folder, no repository."""
    path = folder / "train.py"
    path.write_text(SCRIPT)
    return path


class TestWhatIsAsked:
    def test_nothing_is_written_by_default(self, tool: Tool, train: Path) -> None:
        outcome = tool("train.py")
        assert outcome.code == 0
        assert b"+accelerator.backward(loss)" in outcome.out
        assert outcome.err == ""
        assert train.read_text() == SCRIPT
        assert os.listdir() == ["train.py"]

    def test_write(self, tool: Tool, train: Path) -> None:
        outcome = tool("train.py", "--write")
        assert outcome.code == 0
        assert train.read_text() == MIGRATED
        assert sorted(os.listdir()) == ["train.launch.yaml", "train.py"]
        assert b"Migrated 1 file." in outcome.out

    def test_a_second_run_changes_nothing(self, tool: Tool, train: Path) -> None:
        tool("train.py", "--write")
        outcome = tool("train.py", "--write", "--check", "--format", "json")
        assert outcome.code == 0
        assert report(outcome)["train.py"]["status"] == "unchanged"

    def test_check_fails_where_a_file_would_change(self, tool: Tool, train: Path) -> None:
        assert tool("train.py", "--check").code == 1
        assert train.read_text() == SCRIPT
        train.write_text(MIGRATED)
        assert tool("train.py", "--check").code == 0

    def test_check_fails_where_a_person_must_act(self, tool: Tool, train: Path) -> None:
        train.write_text("import torch\nby_hand()\n")
        assert tool("train.py", "--check").code == 1
        assert tool("train.py").code == 0

    def test_the_diff_is_all_that_goes_to_standard_output(self, tool: Tool, train: Path) -> None:
        outcome = tool("train.py", "--format", "diff")
        assert outcome.out.startswith(b"--- a/train.py\n")
        subprocess.run(["git", "apply", "-"], input=outcome.out, check=True)
        assert train.read_text() == MIGRATED

    def test_the_report_in_a_file(self, tool: Tool, train: Path) -> None:
        outcome = tool("train.py", "--format", "json", "--output", "report.json")
        assert outcome.out == b""
        assert json.loads(Path("report.json").read_bytes())["summary"]["migrated"] == 1

    def test_folders(self, tool: Tool, folder: Path) -> None:
        os.makedirs("src/models")
        for name in ("src/train.py", "src/models/net.py"):
            Path(name).write_text(SCRIPT)
        Path("src/plain.py").write_text("x = 1\n")
        outcome = tool("src", "--format", "json", "--write")
        statuses = {path: file["status"] for path, file in report(outcome).items()}
        assert statuses == {"src/models/net.py": "migrated", "src/plain.py": "unchanged", "src/train.py": "migrated"}
        assert Path("src/models/net.py").read_text() == MIGRATED

    def test_jobs_give_the_same_report(self, tool: Tool, folder: Path) -> None:
        for number in range(4):
            os.mkdir(f"p{number}")
            Path(f"p{number}/train.py").write_text(SCRIPT)
        arguments = ["p0", "p1", "p2", "p3", "--format", "json"]
        assert tool(*arguments, "--jobs", "1").out == tool(*arguments, "--jobs", "2").out

    def test_quiet_and_verbose(self, tool: Tool, train: Path) -> None:
        Path("old.py").write_text("print 'x'\n")
        assert "old.py:1: AM001" in tool("train.py", "old.py", "--format", "diff").err
        Path("plain.py").write_text("")
        assert b"plain.py" in tool(".", "--verbose").out
        assert b"plain.py" not in tool(".").out
        assert b"+accelerator" not in tool("train.py", "--quiet").out

    def test_target_and_codes_reach_the_migration(
        self, tool: Tool, train: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = []

        def watched(scripts: Sequence[Script], options: Options) -> list[FileResult]:
            seen.append(options)
            return stub_migration(scripts, options)

        monkeypatch.setattr("accelerate_migrate.migrate.migrate_program", watched)
        tool("train.py", "--target", "accelerate", "--select", "am13,AM180", "--select", "AM0", "--ignore", "AM131")
        (options,) = seen
        assert (options.target.value, options.select, options.ignore) == (
            "accelerate", ("AM13", "AM180", "AM0"), ("AM131",)
        )  # fmt: skip

    def test_settings_of_the_project(self, tool: Tool, train: Path) -> None:
        Path("pyproject.toml").write_text('[tool.accelerate-migrate]\nexclude = ["train.py"]\ntarget = "accelerate"\n')
        Path("other.py").write_text(SCRIPT)
        document = json.loads(tool(".", "--format", "json").out)
        assert document["target"] == "accelerate"
        assert [file["path"] for file in document["files"]] == ["other.py"]
        assert json.loads(tool(".", "--format", "json", "--target", "runtime").out)["target"] == "runtime"


class TestStandardInput:
    def test_the_report_is_a_diff(self, tool: Tool, folder: Path) -> None:
        outcome = tool("-", stdin=SCRIPT.encode())
        assert outcome.code == 0
        assert outcome.out.startswith(b"--- a/<stdin>\n")

    @pytest.mark.parametrize("ending", ["\n", "\r\n"])
    def test_write_gives_the_migrated_script(self, tool: Tool, folder: Path, ending: str) -> None:
        outcome = tool("-", "--write", stdin=SCRIPT.replace("\n", ending).encode())
        assert outcome.out.decode() == MIGRATED.replace("\n", ending)
        assert os.listdir() == []

    @pytest.mark.parametrize("data", [b"", b"x = 1", b"print 'x'\n", b"\x89PNG\0"])
    def test_write_gives_back_what_it_does_not_change(self, tool: Tool, folder: Path, data: bytes) -> None:
        assert tool("-", "--write", stdin=data).out == data

    def test_what_cannot_be_read_is_said_on_standard_error(self, tool: Tool, folder: Path) -> None:
        outcome = tool("-", "--write", stdin=b"print 'x'\n")
        assert outcome.err.startswith("accelerate-migrate: <stdin>:1: AM001 Line 1 is Python 2")

    def test_the_report_may_go_to_a_file(self, tool: Tool, folder: Path) -> None:
        outcome = tool("-", "--write", "--format", "json", "--output", "report.json", stdin=SCRIPT.encode())
        assert outcome.out == MIGRATED.encode()
        assert json.loads(Path("report.json").read_bytes())["files"][0]["launch_config"] is None


class TestCodes:
    def test_list_rules(self, tool: Tool) -> None:
        lines = tool("--list-rules").out.decode().splitlines()
        assert lines[0].startswith("AM000  internal")
        assert any(line.split() == ["AM130", "backward", "One", "line."] for line in lines)

    @pytest.mark.parametrize("code", ["AM130", "am130", "backward", "AM001"])
    def test_explain(self, tool: Tool, code: str) -> None:
        outcome = tool("--explain", code)
        assert outcome.code == 0
        assert outcome.out.startswith(b"# AM")

    @pytest.mark.parametrize(
        "arguments", [("--explain", "AM133"), ("train.py", "--select", "AM1,AM133"), ("train.py", "--ignore", "AM133")]
    )
    def test_an_unknown_code_is_a_usage_error_that_names_near_ones(
        self, tool: Tool, train: Path, arguments: tuple[str, ...]
    ) -> None:
        outcome = tool(*arguments)
        assert outcome.code == 2
        assert "no rule has the code 'AM133'; near are AM131 (clip), AM130 (backward)" in outcome.err

    def test_an_unknown_code_in_the_settings(self, tool: Tool, train: Path) -> None:
        Path("pyproject.toml").write_text('[tool.accelerate-migrate]\nignore = ["XX9"]\n')
        outcome = tool("train.py")
        assert (outcome.code, outcome.out) == (2, b"")
        assert "'XX9'; --list-rules lists all" in outcome.err


USAGE_ERRORS = {
    "no path": ([], "no path is given"),
    "a missing path": (["nope.py"], "There is no file or folder 'nope.py'."),
    "a folder without Python": (["docs"], "There is no Python file in 'docs'"),
    "a glob that matches nothing": (["*.nope"], "No Python file matches"),
    "an unknown format": (["train.py", "--format", "xml"], "there are diff, json, rich"),
    "unknown checkpoints": (["train.py", "--checkpoints", "new"], "--checkpoints is keep or state, not 'new'"),
    "an unknown target": (["train.py", "--target", "tpu"], "--target is runtime or accelerate, not 'tpu'"),
    "output into a missing folder": (["train.py", "--output", "no/report"], "--output: there is no folder 'no'"),
    "output onto a folder": (["train.py", "--output", "docs"], "'docs' is a folder"),
    "input and paths": (["-", "train.py"], "cannot be combined"),
    "no jobs": (["train.py", "--jobs", "0"], "--jobs"),
    "an unknown option": (["train.py", "--wirte"], "--wirte"),
    "a wrong setting": (["odd"], "frob is no setting"),
}


@pytest.mark.parametrize("name", USAGE_ERRORS)
def test_usage_errors_exit_2_and_write_nothing(tool: Tool, train: Path, name: str) -> None:
    os.mkdir("docs")
    os.mkdir("odd")
    Path("odd/train.py").write_text(SCRIPT)
    Path("odd/pyproject.toml").write_text("[tool.accelerate-migrate]\nfrob = 1\n")
    arguments, message = USAGE_ERRORS[name]
    outcome = tool(*arguments, "--write")
    assert outcome.code == 2
    assert outcome.out == b""
    assert message in outcome.err
    assert train.read_text() == SCRIPT


def test_a_missing_path_does_not_keep_the_others_from_being_processed(tool: Tool, train: Path) -> None:
    outcome = tool("nope.py", "train.py", "--write")
    assert outcome.code == 2
    assert outcome.err.count("nope.py") == 1
    assert train.read_text() == MIGRATED


def test_a_report_is_written_also_where_there_was_no_file(tool: Tool, folder: Path) -> None:
    assert json.loads(tool(".", "--format", "json").out)["files"] == []


LATIN = "# -*- coding: latin-1 -*-\n# café\n"
BAD_INPUT = {
    "binary": (b"\x89PNG\r\n\x1a\n\0torch", "refused", "binary file"),
    "Python 2": (b"import torch\nprint 'loss'\n", "refused", "Python 2"),
    "async argument": (b"import torch\nx = x.cuda(async=True)\n", "refused", "'async' as a name"),
    "syntax error": (b"import torch\ndef f(:\n", "refused", "not valid Python"),
    "latin-1 without a coding line": (b"import torch  # caf\xe9\n", "refused", "coding line is missing"),
    "unknown coding": (b"# coding: klingon\nimport torch\n", "refused", "klingon"),
    "notebook": (b"{}", "refused", "no list of cells"),
    "empty": (b"", "unchanged", ""),
    "no torch": (b"x = 1\n", "unchanged", ""),
    "latin-1 with a coding line": ((LATIN + SCRIPT).encode("latin-1"), "migrated", ""),
    "CRLF": (SCRIPT.replace("\n", "\r\n").encode(), "migrated", ""),
    "BOM": (codecs.BOM_UTF8 + SCRIPT.encode(), "migrated", ""),
    "tabs": (SCRIPT.encode() + b"if loss:\n\tloss.backward()\n", "migrated", ""),
    "no final newline": (SCRIPT.rstrip().encode(), "migrated", ""),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_odd_files_get_one_finding_and_the_others_go_on(tool: Tool, train: Path, name: str) -> None:
    data, status, words = BAD_INPUT[name]
    odd = Path("odd.ipynb" if name == "notebook" else "odd.py")
    odd.write_bytes(data)
    outcome = tool("odd.ipynb" if name == "notebook" else "odd.py", "train.py", "--write", "--format", "json")
    assert outcome.code == 0
    files = report(outcome)
    assert files["train.py"]["status"] == "migrated"
    assert train.read_text() == MIGRATED
    entry = files[odd.name]
    assert entry["status"] == status
    if status == "migrated":
        assert odd.read_bytes() == data.replace(b"loss.backward()", b"accelerator.backward(loss)")
        return
    assert odd.read_bytes() == data
    findings = entry["findings"]
    assert isinstance(findings, list)
    assert len(findings) == (status == "refused")
    if status == "refused":
        assert findings[0]["code"] == "AM001"
        assert words in findings[0]["message"]
        assert outcome.err.count("AM001") == 1


def test_a_file_that_mentions_torch_and_cannot_be_read_is_named_in_a_folder_too(tool: Tool, train: Path) -> None:
    Path("net.py").write_text("import torch\nprint 'no training here'\n")
    Path("mine.py").write_text("# accelerate-migrate: skip-file\nimport torch\nprint 'x'\n")
    Path("other.py").write_text("print 'nothing about training'\n")
    statuses = {path: file["status"] for path, file in report(tool(".", "--format", "json")).items()}
    assert statuses == {"mine.py": "unchanged", "net.py": "refused", "other.py": "unchanged", "train.py": "migrated"}


def test_code_beyond_the_recursion_limit_is_refused(tool: Tool, train: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def falls_over(scripts: Sequence[Script], options: Options) -> list[FileResult]:
        raise RecursionError

    monkeypatch.setattr("accelerate_migrate.migrate.migrate_program", falls_over)
    outcome = tool("train.py", "--format", "json")
    assert outcome.code == 0
    assert "nested too deeply" in outcome.err


def test_a_read_only_file(tool: Tool, train: Path) -> None:
    train.chmod(0o444)
    outcome = tool("train.py", "--write", "--format", "diff")
    assert outcome.code == 0
    assert outcome.err == "accelerate-migrate: train.py:1: AM002 Not written: it is read-only.\n"
    assert train.read_text() == SCRIPT
    assert os.listdir() == ["train.py"]
    assert b"would change" in tool("train.py").out  # to look at, it is as good as any


def test_uncommitted_changes(tool: Tool, repository: Path) -> None:
    changed = SCRIPT + "# mine\n"
    Path("train.py").write_text(changed)
    outcome = tool("train.py", "--write", "--format", "json")
    assert outcome.code == 0
    assert "uncommitted changes; commit or stash them, or use --no-respect-git" in outcome.err
    assert Path("train.py").read_text() == changed
    assert tool("train.py", "--write", "--no-respect-git").code == 0
    assert Path("train.py").read_text() == MIGRATED + "# mine\n"


def test_gitignore_holds_unless_told_otherwise(tool: Tool, repository: Path) -> None:
    Path(".gitignore").write_text("gen.py\n")
    Path("gen.py").write_text(SCRIPT)
    assert list(report(tool(".", "--format", "json"))) == ["train.py"]
    assert list(report(tool(".", "--format", "json", "--no-respect-git"))) == ["gen.py", "train.py"]


def test_a_fault_of_ours_stays_in_its_file(tool: Tool, train: Path) -> None:
    Path("bad.py").write_text("import torch\nfault_of_ours\n")
    outcome = tool(".", "--write", "--format", "json")
    assert outcome.code == 1
    files = report(outcome)
    assert files["bad.py"]["status"] == "error"
    assert "AM000 The tool failed on this file (RuntimeError: the stub fell over" in outcome.err
    assert "Traceback" not in outcome.err
    assert files["train.py"]["status"] == "migrated"
    assert train.read_text() == MIGRATED


def test_a_commit_makes_the_guard_content(tool: Tool, repository: Path) -> None:
    Path("train.py").write_text(SCRIPT + "x = 1\n")
    commit_all()
    assert tool(".", "--write").code == 0
    assert "accelerator" in git("diff")

"""The command in this process, with a migration simple enough to know its result by heart."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from accelerate_migrate.codes import SOURCE, refused
from accelerate_migrate.findings import FileResult, Finding, Options, Severity, Status
from accelerate_migrate.source import Script, SourceProblem

SCRIPT = "import torch\nloss = torch.ones(1, requires_grad=True).sum()\nloss.backward()\n"
MIGRATED = SCRIPT.replace("loss.backward()", "accelerator.backward(loss)")


@dataclass(frozen=True)
class Outcome:
    """What one call of the command did."""

    code: int
    out: bytes
    err: str


Tool = Callable[..., Outcome]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Call the command as a shell would: ``tool("train.py", "--write", stdin=b"")``."""
    from accelerate_migrate.cli import main

    def call(*arguments: str | Path, stdin: bytes = b"") -> Outcome:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        monkeypatch.setattr(sys, "argv", ["accelerate-migrate", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit) as ended:
            main()
        out.flush()
        code = ended.value.code
        return Outcome(code if isinstance(code, int) else int(code is not None), out.buffer.getvalue(), err.getvalue())

    return call


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """``x.backward()`` becomes ``accelerator.backward(x)``; a line with ``by_hand()`` is left to a person."""
    monkeypatch.setattr("accelerate_migrate.migrate.migrate_program", stub_migration)
    registry = types.ModuleType("accelerate_migrate.rules.registry")
    rules = [Rule("AM130", "backward"), Rule("AM131", "clip"), Rule("AM180", "leftover")]
    vars(registry)["all_rules"] = lambda: rules
    monkeypatch.setitem(sys.modules, "accelerate_migrate.rules.registry", registry)


@dataclass(frozen=True)
class Rule:
    """As much of a rule as the shell needs."""

    code: str
    name: str
    summary: str = "One line."

    def explain(self) -> str:
        return f"# {self.code} {self.name}\n\nBefore: `loss.backward()`\n"


def stub_migration(scripts: Sequence[Script], options: Options) -> list[FileResult]:
    return [_migrate(script) for script in scripts]


def _migrate(script: Script) -> FileResult:
    if b"backward" not in script.data and b"_" not in script.data:
        return FileResult(script.path, Status.UNCHANGED, script.data)  # like the real one, unread
    try:
        script.parse()
    except SourceProblem as problem:
        return refused(script.path, script.data, SOURCE, problem.message, problem.line)
    if b"fault_of_ours" in script.data:
        raise RuntimeError("the stub fell over")
    after = re.sub(rb"(\w+)\.backward\(\)", rb"accelerator.backward(\1)", script.data)
    after = after.replace(b"accelerator.backward(accelerator)", b"accelerator.backward()")
    findings = []
    for number, line in enumerate(script.data.split(b"\n"), 1):
        if b".backward()" in line:
            message = "loss.backward() -> accelerator.backward(loss)"
            findings.append(Finding("AM130", "backward", Severity.MIGRATED, number, 1, number, message))
        if b"by_hand()" in line:
            findings.append(Finding("AM180", "leftover", Severity.MANUAL, number, 1, number, "Look at this."))
    encoding = script.encoding
    if after == script.data:
        return FileResult(script.path, Status.UNCHANGED, script.data, None, tuple(findings), encoding=encoding)
    config = f"num_processes: 1  # {os.path.basename(script.path)}\n"
    return FileResult(script.path, Status.MIGRATED, script.data, after, tuple(findings), config, encoding)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def repository(folder: Path) -> Path:
    """A git repository that is the current folder, with ``train.py`` committed."""
    git("init", "-q")
    (folder / "train.py").write_text(SCRIPT)
    commit_all()
    return folder


def git(*arguments: str) -> str:
    """Run git in the current folder."""
    who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *arguments], check=True, capture_output=True, text=True).stdout


def commit_all() -> None:
    git("add", "-A")
    git("commit", "-qm", "x")

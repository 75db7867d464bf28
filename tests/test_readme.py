"""Every code block of README.md is checked, in the way that the HTML comment before it names.

<!-- check: runs -->        commands that succeed, one after another, in a folder with train.py and src/
<!-- check: make -->        targets of the Makefile
<!-- check: examples -->    commands over scripts that examples/ has (its own tests run them)
<!-- check: install -->     pip commands that install this project; its extras exist
<!-- check: diff NAME -->   the whole diff of a fixture (``pytest --update-fixtures`` fills it in)
<!-- check: unchanged -->   code in which the tool changes nothing
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from accelerate_migrate.findings import Options
from accelerate_migrate.migrate import migrate_program
from accelerate_migrate.source import Script
from support.cases import FIXTURES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"(?:^<!-- check: (?P<check>.+) -->\n)?^```(?P<info>.*)\n(?P<text>(?:.*\n)*?)^```$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: how it is checked, its text, and the line of the README on which the text starts."""

    check: str
    text: str
    line: int

    def commands(self) -> list[list[str]]:
        lines = self.text.splitlines()
        assert lines, "an empty block"
        assert all(line.startswith("$ ") for line in lines), "each line is a command after a $"
        return [shlex.split(line[2:]) for line in lines]


def blocks(*checks: str) -> list[Block]:
    text = README.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        block = Block(match["check"] or "", match["text"], text.count("\n", 0, match.start("text")) + 1)
        if not checks or block.check.split(" ")[0] in checks:
            found.append(block)
    return found


def each(*checks: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", blocks(*checks), ids=lambda block: f"line {block.line}")


def test_every_block_says_how_it_is_checked() -> None:
    known = {"runs", "make", "examples", "install", "diff", "unchanged"}
    assert [block for block in blocks() if block.check.split(" ")[0] not in known] == []
    assert README.read_text(encoding="utf-8").count("\n```") == 2 * len(blocks())


@pytest.mark.e2e
def test_commands_run(tmp_path: Path) -> None:
    """All of them, in the order of the page and in one folder: later ones may need what earlier ones wrote."""
    (tmp_path / "src").mkdir()
    shutil.copyfile(FIXTURES / "demo" / "before.py", tmp_path / "train.py")
    shutil.copyfile(FIXTURES / "demo" / "before.py", tmp_path / "src" / "train.py")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    for block in blocks("runs"):
        for command in block.commands():
            done = subprocess.run(
                command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
            )
            said = f"{shlex.join(command)} (README.md, line {block.line})\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
            assert done.returncode == 0, said


@each("make")
def test_make_targets(block: Block) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in block.commands():
        assert command[0] == "make"
        for target in command[1:]:
            assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@each("examples")
def test_examples_are_there(block: Block) -> None:
    for command in block.commands():
        assert (ROOT / command[-1]).is_file()


def test_every_example_is_named() -> None:
    text = README.read_text(encoding="utf-8")
    for script in (ROOT / "examples").glob("*.py"):
        assert f"(examples/{script.name})" in text


@each("install")
def test_install(block: Block) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for command in block.commands():
        assert command[:2] == ["pip", "install"]
        match = re.fullmatch(r"\.(?:\[([\w,]+)\])?", command[2])
        assert match
        assert set((match[1] or "").split(",")) <= {"", *project["optional-dependencies"]}


@each("diff")
def test_diff(block: Block, update_fixtures: bool) -> None:
    folder = FIXTURES / block.check.split(" ")[1]
    before, after = ((folder / name).read_text(encoding="utf-8").splitlines() for name in ("before.py", "after.py"))
    diff = list(difflib.unified_diff(before, after, "train.py", "train.py", n=2, lineterm=""))
    text = "".join(f"{line}\n" for line in diff)
    if update_fixtures:
        page = README.read_text(encoding="utf-8")
        head = f"<!-- check: {block.check} -->\n```diff\n"
        README.write_text(page.replace(f"{head}{block.text}```", f"{head}{text}```"), encoding="utf-8")
    else:
        assert block.text == text


@each("unchanged")
def test_unchanged(block: Block) -> None:
    """In a script around it that would be changed there without the comment."""
    head = (
        "import torch\n\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "loss = model(torch.ones(1, 2)).sum()\n"
    )
    kept = migrate_program([Script("train.py", (head + block.text).encode())], Options())[0]
    assert block.text in kept.text_after()
    bare = re.sub(r"  # accelerate-migrate: \S+", "", block.text)
    changed = migrate_program([Script("train.py", (head + bare).encode())], Options())[0]
    assert bare not in changed.text_after()

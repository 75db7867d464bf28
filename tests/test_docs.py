"""The pages in docs/: their code runs, every public name has its entry, and building them gives no warning.

A block of Python in a page is run, after those before it; each page has a process and a folder of its own. An HTML
comment before a block says otherwise:

<!-- check: file NAME -->   the block is written to that file, in the page's folder
<!-- check: runs -->        commands that succeed

Other blocks are only shown.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"(?:^<!-- check: (?P<check>.+) -->\n)?^```(?P<info>.*)\n(?P<text>(?:.*\n)*?)^```$", re.MULTILINE)
WRITTEN = sorted(path for path in (*DOCS.glob("*.md"), *DOCS.glob("library/*.md"), *DOCS.glob("tool/*.md")))
MODULES = (
    "accelerate_runtime",
    "accelerate_runtime.utils",
    "accelerate_runtime.tracking",
    "accelerate_runtime.data_loader",
)
ENTRIES = ("logging.get_logger", "state.PartialState", "state.GradientState", "local_sgd.LocalSGD")


@dataclass(frozen=True)
class Page:
    """A page, and what its blocks say."""

    path: Path

    def blocks(self) -> list[re.Match[str]]:
        return list(BLOCK.finditer(self.path.read_text(encoding="utf-8")))

    def program(self) -> str:
        """The page as Python: its blocks on their lines, everything else empty."""
        text = self.path.read_text(encoding="utf-8")
        lines = [""] * text.count("\n")
        for block in self.blocks():
            if block["info"] == "python" and not block["check"]:
                at = text.count("\n", 0, block.start("text"))
                code = block["text"].splitlines()
                lines[at : at + len(code)] = code
        return "\n".join(lines).rstrip()

    def files(self) -> dict[str, str]:
        return {
            block["check"].split()[1]: block["text"]
            for block in self.blocks()
            if (block["check"] or "").startswith("file ")
        }

    def commands(self) -> list[list[str]]:
        texts = [block["text"] for block in self.blocks() if block["check"] == "runs"]
        return [shlex.split(line.removeprefix("$ ")) for text in texts for line in text.splitlines()]


def pages() -> list[Page]:
    found = [Page(path) for path in WRITTEN]
    return [page for page in found if page.program() or page.commands()]


def environment(folder: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HOME": str(folder)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Page, Path]:
    """Each page's folder, after its Python has run there."""
    folders = {page: tmp_path_factory.mktemp(page.path.stem) for page in pages()}
    programs = []
    for page, folder in folders.items():
        for name, text in page.files().items():
            (folder / name).write_text(text, encoding="utf-8")
        if page.program():
            programs.append(folder / page.path.name)  # what tracebacks show, with the lines of the page
            programs[-1].write_text(page.program(), encoding="utf-8")
    command = [sys.executable, str(ROOT / "tests" / "support" / "page_runner.py"), *map(str, programs)]
    subprocess.run(command, env=environment(programs[0].parent), timeout=600, check=True)
    return folders


@pytest.mark.e2e
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.path.stem)
def test_the_code_of_a_page_runs(page: Page, folders: dict[Page, Path]) -> None:
    folder = folders[page]
    if page.program():
        printed = (folder / "output.txt").read_text(encoding="utf-8")
        assert (folder / "code.txt").read_text(encoding="utf-8") == "0", printed
        shown = re.findall(r"^# (process \d: .*)$", page.program(), re.MULTILINE)
        assert [line for line in shown if line not in printed] == [], "not what the comments behind the calls say"
    for command in page.commands():
        env = environment(folder)
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def test_everything_public_says_what_it_is() -> None:
    silent = []
    for module in MODULES:
        offering = importlib.import_module(module)
        for name in offering.__all__:
            item = getattr(offering, name)
            if callable(item) and not inspect.getdoc(item):
                silent.append(f"{module}.{name}")
            if inspect.isclass(item):
                silent += [f"{module}.{name}.{member}" for member in _members_without_docstring(item)]
    assert silent == []


def _members_without_docstring(cls: type) -> list[str]:
    """Public methods and properties that classes of ours define; an override may leave it to what it overrides."""
    found = []
    for member in dir(cls):
        owner = next((base for base in cls.__mro__ if member in vars(base)), None)
        if member.startswith("_") or owner is None or not owner.__module__.startswith("accelerate_runtime"):
            continue
        value = vars(owner)[member]
        is_code = isinstance(value, (property, classmethod, staticmethod)) or inspect.isroutine(value)
        if is_code and not inspect.getdoc(value if isinstance(value, property) else getattr(cls, member)):
            found.append(member)
    return found


def test_the_page_of_strategies_names_every_member() -> None:
    from accelerate_runtime import Strategy

    page = (DOCS / "library" / "custom_strategies.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(\w+)", page, re.MULTILINE))
    assert named == {name for name in vars(Strategy) if not name.startswith("_")}


@dataclass(frozen=True)
class Site:
    """The built pages."""

    folder: Path
    warnings: str

    @cached_property
    def anchors(self) -> set[str]:
        texts = (path.read_text(encoding="utf-8") for path in self.folder.glob("api/*.html"))
        return {anchor for text in texts for anchor in re.findall(r'\bid="([\w.]+)"', text)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """`make docs`, elsewhere."""
    if importlib.util.find_spec("sphinx") is None or importlib.util.find_spec("myst_parser") is None:
        pytest.skip("needs the dependency group docs, which `make docs` installs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-b", "html", "-d", str(folder / "read")]
    done = subprocess.run(
        [*command, str(DOCS), str(folder / "site")], capture_output=True, text=True, timeout=600, check=False
    )
    return Site(folder / "site", done.stdout + done.stderr)


@pytest.mark.e2e
def test_pages_build_without_a_warning(site: Site) -> None:
    assert site.warnings == ""


@pytest.mark.e2e
def test_every_public_name_has_its_entry(site: Site) -> None:
    names = {f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__}
    names |= {f"accelerate_runtime.{entry}" for entry in ENTRIES}
    assert sorted(names - site.anchors) == []


@pytest.mark.e2e
def test_every_rule_has_its_page(site: Site) -> None:
    from accelerate_migrate.catalogue import entries

    for entry in entries():
        page = (site.folder / "rules" / f"{entry.code}.html").read_text(encoding="utf-8")
        assert f"{entry.code} {entry.name}" in page

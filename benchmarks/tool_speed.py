"""What the tool costs: its CPU time over a corpus against parsing the same files once with libcst, in one run.

    python benchmarks/tool_speed.py [FOLDER…]

Without a folder it measures on Python files that any machine with a checkout has: this repository's fixtures and tests,
and the `torch/optim` and `torch/utils` packages of the installed torch, which mention torch but train nothing. A corpus
of real repositories says more; give its folder.

Both sides run in processes of their own, warmed up, and the least CPU time of several rounds counts; what starting and
importing costs is a ratio of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WARM_UP = ROOT / "fixtures" / "demo" / "before.py"
ROUNDS = 3

MEASURE = """
import sys, time
{setup}
start = time.process_time()
{work}
print(time.process_time() - start)
"""
PARSE = (
    "import pathlib\nimport libcst\nfiles = list(pathlib.Path(sys.argv[1]).rglob('*.py'))",
    """
for file in files:
    try:
        libcst.parse_module(file.read_bytes())
    except (libcst.ParserSyntaxError, UnicodeDecodeError):
        pass
""",
)
MIGRATE = (
    """
from accelerate_migrate.cli import main

def migrate(path):
    sys.argv[1:] = [path, "--format", "json", "--output", report, "--jobs", "1", "--quiet", "--no-respect-git"]
    try:
        main()
    except SystemExit as end:
        assert end.code in (0, 1, None), end.code

folder, warm_up, report = sys.argv[1:]
migrate(warm_up)
""",
    "migrate(folder)",
)
START_TOOL = ("", "import accelerate_migrate.cli")
START_LIBCST = ("", "import libcst")


def cpu_seconds(program: tuple[str, str], *args: str) -> float:
    """The least CPU time of several runs of a small program that measures itself."""
    source = MEASURE.format(setup=program[0], work=program[1])
    times = []
    for _ in range(ROUNDS):
        done = subprocess.run([sys.executable, "-c", source, *args], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        times.append(float(done.stdout.split()[-1]))
    return min(times)


def default_corpus(into: Path) -> None:
    for name in ("fixtures", "tests"):
        shutil.copytree(ROOT / name, into / name)
    torch = importlib.util.find_spec("torch")
    for package in torch.submodule_search_locations or () if torch else ():
        for part in ("optim", "utils/data"):
            shutil.copytree(Path(package) / part, into / "torch" / part, ignore=shutil.ignore_patterns("__pycache__"))


def measure(name: str, folder: Path, report: Path) -> None:
    files = list(folder.rglob("*.py"))
    lines = sum(file.read_bytes().count(b"\n") for file in files)
    parse = cpu_seconds(PARSE, str(folder))
    tool = cpu_seconds(MIGRATE, str(folder), str(WARM_UP), str(report))
    print(f"{name}: {len(files)} files, {lines} lines")
    print(f"  tool / libcst.parse_module, CPU time     {tool / parse:6.2f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="CPU time of the tool against libcst.parse_module, as a ratio.")
    parser.add_argument("folders", nargs="*", type=Path)
    folders: list[Path] = parser.parse_args(arguments).folders
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.json"
        for folder in folders:
            measure(folder.name, folder, report)
        if not folders:
            corpus = Path(temporary) / "corpus"
            default_corpus(corpus)
            measure("fixtures, tests, torch/optim, torch/utils/data", corpus, report)
        ratio = cpu_seconds(START_TOOL) / cpu_seconds(START_LIBCST)
        print(f"  import accelerate_migrate.cli / import libcst {ratio:.2f}")


if __name__ == "__main__":
    main()

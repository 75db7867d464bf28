"""What is imported when: the tool never needs torch, and asking for help needs next to nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = (
    "torch",
    "libcst",
    "jinja2",
    "rich",
    "accelerate",
    "accelerate_runtime",
    "yaml",
    "pygments",
    "concurrent.futures",
)


def modules_after(code: str) -> set[str]:
    """What a fresh interpreter has imported after some code."""
    code += "\nimport sys\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(option: str) -> None:
    loaded = modules_after(
        f"import sys\nsys.argv = ['accelerate-migrate', {option!r}]\n"
        "from accelerate_migrate.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass"
    )
    assert "accelerate_migrate.cli" in loaded
    assert not loaded.intersection(HEAVY)


def test_every_module_does_without_torch() -> None:
    loaded = modules_after(
        "import importlib, pkgutil, accelerate_migrate\n"
        "for module in pkgutil.walk_packages(accelerate_migrate.__path__, 'accelerate_migrate.'):\n"
        "    if not module.name.endswith('__main__') and '.verify.' not in module.name:\n"
        "        importlib.import_module(module.name)\n"
    )
    assert "accelerate_migrate.report.console" in loaded
    assert not loaded.intersection({"torch", "accelerate", "accelerate_runtime"})


def test_the_module_is_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "accelerate_migrate", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("accelerate-migrate ")


def test_a_reader_that_goes_away_is_no_fault(tmp_path: os.PathLike[str]) -> None:
    command = f"{sys.executable} -m accelerate_migrate --list-rules | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "Traceback" not in done.stderr

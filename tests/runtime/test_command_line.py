"""The `accelerate-runtime` command, and importing the package where torch is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accelerate_runtime import __version__, cli

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; "
INSTALL = 'pip install "accelerate-migrate[torch]"'


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which a command is refused."""
    with pytest.raises(SystemExit) as stop:
        cli.main([*arguments])
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 1
    return lines[0].removeprefix("accelerate-runtime: error: ")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "accelerate_runtime", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["launch"], "Missing argument"),
        (["launch", "none.py"], "script none.py does not exist"),
        (["launch", "."], "script . is a folder"),
        (["launch", "--num_processes", "0", "x.py"], "num_processes is 0; it must be a whole number, 1 or more"),
        (["launch", "--num-processes", "two", "x.py"], "--num-processes"),
        (["launch", "--mixed_precision", "half", "x.py"], "mixed_precision is 'half'; allowed are no, fp16, bf16"),
        (["launch", "--config_file", "none.yaml", "x.py"], "config file none.yaml: No such file"),
        (["launch", "--cpu", "--multi_gpu", "x.py"], "cannot go together"),
        (["launch", "--nonsense", "x.py"], "No such option: --nonsense"),
        (["lunch"], "No such command 'lunch'"),
    ],
)
def test_a_wrong_command_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert told in refused(capsys, *arguments)


def test_help_and_version_do_without_torch() -> None:
    for arguments, told in (
        (["--version"], f"accelerate-runtime {__version__}"),
        (["--help"], "launch"),
        (["launch", "--help"], "--num-processes"),
    ):
        code = (
            f"import sys; sys.argv = ['accelerate-runtime', *{arguments}]\n"
            "from accelerate_runtime.cli import main\n"
            "try: main()\n"
            "except SystemExit as stop: assert not stop.code\n"
            "assert 'torch' not in sys.modules and 'yaml' not in sys.modules"
        )
        got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert got.returncode == 0, got.stderr
        assert told in got.stdout


def test_importing_without_torch_says_what_to_install() -> None:
    code = WITHOUT_TORCH + "import accelerate_runtime"
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert got.returncode == 1
    assert INSTALL in got.stderr.splitlines()[-1]
    assert got.stderr.splitlines()[-1].startswith("ImportError: ")


def test_the_command_without_torch_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("")
    for arguments in (["launch", str(tmp_path / "x.py")], ["env"]):
        code = f"{WITHOUT_TORCH} sys.argv = ['accelerate-runtime', *{arguments}]\n"
        code += "from accelerate_runtime.cli import main; main()"
        got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert got.returncode == 2
        assert got.stderr.strip().count("\n") == 0
        assert INSTALL in got.stderr


def test_the_environment_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["env"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert __version__ in out
    assert "gloo" in out


def test_importing_names_loads_only_what_they_need() -> None:
    code = (
        "import torch, sys; before = set(sys.modules)\n"
        "from accelerate_runtime import Accelerator\n"
        "heavy = {'typer', 'rich', 'yaml', 'jinja2', 'torch.distributed.run', 'torch.distributed.elastic'}\n"
        "assert not heavy & (set(sys.modules) - before), heavy & set(sys.modules)"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert got.returncode == 0, got.stderr


def test_one_process_takes_the_launchers_place(tmp_path: Path) -> None:
    """Its arguments, its environment and its exit code are the script's own."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "print(sys.argv[1:], os.environ['ACCELERATE_MIXED_PRECISION'], 'RANK' in os.environ)\n"
        "sys.exit(7)\n"
    )
    got = run("launch", "--cpu", "--mixed-precision", "bf16", str(script), "--cpu", "-m", "x", "--help")
    assert got.returncode == 7
    assert got.stdout == "['--cpu', '-m', 'x', '--help'] bf16 False\n"
    assert got.stderr == ""


@pytest.mark.e2e
def test_a_process_that_dies_shows_its_traceback_and_ends_the_others(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(
        "import time\n"
        "from accelerate_runtime import Accelerator\n"
        "accelerator = Accelerator()\n"
        "accelerator.wait_for_everyone()\n"
        "if accelerator.process_index == 1:\n"
        "    raise RuntimeError('out of luck')\n"
        "time.sleep(600)\n"
    )
    got = run("launch", "--cpu", "--num_processes", "2", str(script))
    assert got.returncode == 1
    assert got.stderr.count("Traceback (most recent call last)") == 1
    assert "RuntimeError: out of luck" in got.stderr
    assert "ended with exit code 1; the other processes were stopped" in got.stderr.splitlines()[-1]
    assert "torch/distributed/elastic" not in got.stderr


@pytest.mark.e2e
def test_torchrun_forms_one_group_on_the_cpu(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(
        "import torch\n"
        "from accelerate_runtime import Accelerator\n"
        "accelerator = Accelerator()\n"
        "print(accelerator.gather(torch.tensor(accelerator.process_index)).tolist())\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    got = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert got.returncode == 0, got.stderr
    assert got.stdout.count("[0, 1]") == 2, got.stdout  # from both, whose lines may run into each other

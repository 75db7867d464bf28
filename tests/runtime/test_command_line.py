"""The `accelerate-runtime` command, and importing the package where torch is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accelerate_runtime import __version__, cli
from accelerate_runtime.launch.config import LaunchConfig
from accelerate_runtime.launch.files import default_path, write_config

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


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command that ends well shows."""
    with pytest.raises(SystemExit) as stop:
        cli.main([*arguments])
    said = capsys.readouterr()
    assert (stop.value.code, said.err) == (0, "")
    return said.out


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of launch configs that is empty."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "accelerate_runtime", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["launch"], "no script was given"),
        (["launch", "none.py"], "script none.py does not exist"),
        (["launch", "."], "script . is a folder"),
        (["launch", "--no_python", "no-such-program"], "program no-such-program was not found"),
        (["launch", "--config_file", "none.yaml", "x.py"], "script x.py does not exist"),
        (["launch", "--config_file", "none.yaml", "-m", "x"], "config file none.yaml: No such file"),
        (["env", "--config_file", "none.yaml"], "config file none.yaml: No such file"),
        (["test", "--config_file", "none.yaml"], "config file none.yaml: No such file"),
        (["config", "update", "--config_file", "none.yaml"], "config file none.yaml: No such file"),
        (
            ["config", "default", "--config_file", "none.yaml", "--mixed_precision", "half"],
            "'half': allowed are no, fp16",
        ),
        (["env", "--nonsense"], "No such option: --nonsense"),
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
        (["launch", "--help"], "--num_processes"),
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


def test_the_environment_is_shown(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    out = answered(capsys, "env")
    assert __version__ in out
    assert "gloo" in out
    assert "launch config:        none" in out
    answered(capsys, "config", "default", "--mixed_precision", "bf16")
    assert "  mixed_precision: bf16" in answered(capsys, "env").splitlines()


def test_a_dry_run_shows_and_starts_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path, home: Path) -> None:
    (tmp_path / "x.py").write_text("raise SystemExit(9)")
    (tmp_path / "a.yaml").write_text("mixed_precision: bf16\nnum_processes: 3\nuse_cpu: true\n")
    words = [
        "--config_file",
        tmp_path / "a.yaml",
        "--num_processes",
        "2",
        "--dry_run",
        tmp_path / "x.py",
        "--lr",
        "a b",
    ]
    out = answered(capsys, "launch", *map(str, words))
    assert f"command, in 2 processes:\n  {sys.executable} -u {tmp_path}/x.py --lr 'a b'\n" in out
    assert "  ACCELERATE_MIXED_PRECISION=bf16\n" in out
    told = {tuple(line.split(maxsplit=2)) for line in out.splitlines()}
    assert ("num_processes", "2", "flag --num_processes") in told
    assert ("mixed_precision", "bf16", f"{tmp_path}/a.yaml: mixed_precision") in told
    assert ("num_machines", "1", "default") in told


def test_the_default_config_counts_unless_another_is_named_or_cpu_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, home: Path
) -> None:
    write_config(default_path(), LaunchConfig(use_cpu=True, num_processes=2, mixed_precision="bf16"))
    (tmp_path / "named.yaml").write_text("num_processes: 1\nuse_cpu: true\n")
    (tmp_path / "x.py").write_text("")
    dry = ["launch", "--dry_run"]
    default = answered(capsys, *dry, str(tmp_path / "x.py"))
    assert "command, in 2 processes:" in default
    assert f"{default_path()}: mixed_precision" in default
    for flags in (["--config_file", str(tmp_path / "named.yaml")], ["--cpu"]):
        other = answered(capsys, *dry, *flags, str(tmp_path / "x.py"))
        assert "command, in 1 process:" in other
        assert "bf16" not in other


def test_missing_gpus_are_warned_of_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACCELERATE_USE_CPU")
    monkeypatch.setattr("accelerate_runtime.launch.command.count_devices", lambda: 0)
    (tmp_path / "x.py").write_text("")
    command = ["launch", "--multi_gpu", "--num_processes", "2", "--dry_run", str(tmp_path / "x.py")]
    for quiet, lines in ((["--quiet"], 0), ([], 1)):
        with pytest.raises(SystemExit):
            cli.main([*command[:1], *quiet, *command[1:]])
        assert capsys.readouterr().err.count("warning: GPUs were asked for, but torch finds none here") == lines


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


def test_modules_and_programs_are_started_too(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho $ACCELERATE_USE_CPU $@\n")
    (tmp_path / "tool").chmod(0o755)
    assert run("launch", "--cpu", "--no_python", str(tmp_path / "tool"), "-x", "y").stdout == "true -x y\n"
    assert "usage: python -m json.tool" in run("launch", "--cpu", "-m", "json.tool", "--help").stdout


def test_one_process_needs_neither_torch_nor_typer_to_be_launched(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("")
    code = (
        "import os, sys; sys.argv = ['accelerate-runtime', 'launch', '--num_processes', '1', sys.argv[1]]\n"
        "heavy = {'torch', 'typer', 'rich', 'yaml'}\n"
        "os.execvp = lambda *command: sys.exit(f'imported: {sorted(heavy & set(sys.modules))}')\n"
        "from accelerate_runtime.cli import main; main()"
    )
    environment = dict(os.environ, HF_HOME=str(tmp_path))
    got = subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.py")], env=environment, capture_output=True)
    assert got.stderr.decode() == "imported: []\n"


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

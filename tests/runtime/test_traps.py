"""The traps of scripts/traps.py at one process, and one that lies before the script: how it is started."""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from accelerate_runtime import Accelerator

SCRIPTS = Path(__file__).parent / "scripts"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


traps = load(SCRIPTS / "traps.py")
TRAPS = [
    name
    for name, value in vars(traps).items()
    if inspect.isfunction(value) and "accelerator" in inspect.signature(value).parameters
]


@pytest.mark.parametrize("trap", TRAPS)
def test_trap_at_one_process(trap: str) -> None:
    getattr(traps, trap)(Accelerator())


def test_each_trap_is_set_at_two_processes_too() -> None:
    text = (SCRIPTS / "traps_checks.py").read_text(encoding="utf-8")
    assert [name for name in TRAPS if f"def check_{name}(" not in text] == []


@pytest.mark.e2e
def test_bare_torchrun_on_the_cpu_starts_one_training_of_two(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from accelerate_runtime import Accelerator\n"
        "a = Accelerator()\n"
        "import os\n"  # one write a line: the processes share the pipe
        "os.write(1, f'{a.num_processes} {a.process_index} {a.distributed_type.value}\\n'.encode())\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCELERATE_")}
    environment |= {"ACCELERATE_TORCH_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "0"]
    run = subprocess.run(
        [*command, "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", str(script)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert sorted(run.stdout.split("\n")[:2]) == ["2 0 MULTI_CPU", "2 1 MULTI_CPU"]

"""Run programs, each in its folder and in a process of its own, forked from one that has imported torch already.

    python page_runner.py FOLDER/program.py …

Each one's output goes to `output.txt` in its folder, and its exit code to `code.txt`.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path

import torch


def warm_up() -> None:
    """Import what the first step of an optimizer imports."""
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    parameter.sum().backward()
    optimizer.step()


def run(program: Path) -> int:
    """The exit code of `program`."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        os.chdir(program.parent)
        output = os.open("output.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        runpy.run_path(program.name, run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the interpreter's own end belongs to the process that was forked


if __name__ == "__main__":
    warm_up()
    for name in sys.argv[1:]:
        path = Path(name)
        (path.parent / "code.txt").write_text(str(run(path)), encoding="utf-8")

"""What `from accelerate_runtime import Accelerator` adds to `import torch`, and a first Accelerator to that.

python benchmarks/runtime_import.py [ROUNDS]
"""

from __future__ import annotations

import os
import subprocess
import sys

from _common import line

PROGRAM = """
import time
def took(action):
    start = time.process_time()
    action()
    return 1000 * (time.process_time() - start)
def torch(): import torch
def ours(): from accelerate_runtime import Accelerator
def first():
    from accelerate_runtime import Accelerator
    Accelerator(cpu=True)
print(*(took(action) for action in (torch, ours, first)))
"""


def main(rounds: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    runs = []
    for number in range(rounds + 1):
        command = [sys.executable, "-c", PROGRAM]
        run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        if number:  # the first one compiles, and warms the file cache
            runs.append([float(text) for text in run.stdout.split()])
    torch, ours, first = (min(column) for column in zip(*runs, strict=True))
    for name, value, target, accelerate in (
        ("import, after torch", ours, 25.0, "52 ms"),
        ("the first Accelerator()", first, None, "?"),
    ):
        figure = f"{value:.1f} ms = {value / torch:.4f} x torch's"
        print(line(name, figure, value, target, " ms", accelerate, ""))


if __name__ == "__main__":
    main(*(int(text) for text in [*sys.argv[1:], "5"][:1]))

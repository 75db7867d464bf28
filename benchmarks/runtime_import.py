"""What `from accelerate_runtime import Accelerator` adds to `import torch`, and what the first Accelerator costs.

python benchmarks/runtime_import.py [ROUNDS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

PROGRAM = """
import time
def took(action):
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - wall, time.process_time() - cpu
def torch(): import torch
def ours(): from accelerate_runtime import Accelerator
def first():
    from accelerate_runtime import Accelerator
    Accelerator(cpu=True)
print(*(number for action in (torch, ours, first) for number in took(action)))
"""


def main(rounds: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    runs = []
    for number in range(rounds + 1):
        command = [sys.executable, "-c", PROGRAM]
        run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        if number:  # the first one compiles, and warms the file cache
            runs.append([float(text) for text in run.stdout.split()])
    wall, cpu, our_wall, our_cpu, first_wall, _ = (
        1000 * statistics.median(column) for column in zip(*runs, strict=True)
    )
    print("import accelerate_runtime after torch (target <= 25 ms)")
    print(f"  CPU  {our_cpu:6.1f} ms = {our_cpu / cpu:.4f} x import torch ({cpu:.0f} ms)")
    print(f"  wall {our_wall:6.1f} ms = {our_wall / wall:.4f} x import torch ({wall:.0f} ms)")
    print(f"  the first Accelerator() {first_wall:.1f} ms")


if __name__ == "__main__":
    main(*(int(text) for text in [*sys.argv[1:], "5"][:1]))

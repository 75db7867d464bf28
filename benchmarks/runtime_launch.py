"""From `accelerate-runtime launch` to a ready Accelerator, beside plain `python` and `torchrun`, with the same script.

python benchmarks/runtime_launch.py [ROUNDS]
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _common import line

SCRIPT = """
from accelerate_runtime import Accelerator
accelerator = Accelerator(cpu=True)
accelerator.wait_for_everyone()
accelerator.end_training()
"""
LAUNCH = [sys.executable, "-m", "accelerate_runtime", "launch", "--cpu", "--num_processes"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node"]


def main(rounds: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}

    def cpu_time(command: list[str]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "ready.py")
        script.write_text(SCRIPT)
        for name, plain, launched, target, accelerate in (
            ("launch, one process", [sys.executable], [*LAUNCH, "1"], 1.15, "2.27"),
            ("launch, two processes", [*TORCHRUN, "2"], [*LAUNCH, "2"], 1.05, "?"),
        ):
            ratios, again = [], []
            for number in range(rounds + 1):
                first = cpu_time([*plain, str(script)])
                ours = cpu_time([*launched, str(script)])
                second = cpu_time([*plain, str(script)])
                if number:  # the first one compiles, and warms the file cache
                    ratios.append(2 * ours / (first + second))
                    again.append(second / first)
            ratio = statistics.median(ratios)
            beside = "torchrun" if "torch.distributed.run" in plain else "python"
            note = f"({beside} x {beside} {statistics.median(again):.3f})"
            print(line(name, f"{ratio:.3f} x {beside}", ratio, target, "", accelerate, note))


if __name__ == "__main__":
    main(*(int(text) for text in [*sys.argv[1:], "7"][:1]))

"""Runs the checks one after the other, each in processes of its own; see run.sh."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import checks
import torch

DEADLINE = time.monotonic() + 460  # seconds; the shell ends us at 480
NO_GPU = 3


def run(name: str, check: checks.Check, folder: Path) -> tuple[str, str]:
    """Run one check; returns what is to be said of it ("passed", "FAILED", "not here") and why."""
    found = torch.cuda.device_count()
    if found < check.processes:
        return "not here", f"it needs {check.processes} GPUs, and {found} was found"
    left = DEADLINE - time.monotonic()
    if left < 20:
        return "FAILED", "the 8 minutes were over before it began"
    verdict = folder / name
    command = [sys.executable, "-m", "accelerate_runtime", "launch", "--num_processes", str(check.processes)]
    command += [checks.__file__, name]
    environment = {**os.environ, "GPU_CHECK_VERDICT": str(verdict), "GPU_CHECK_FOLDER": str(folder / f"{name}.files")}
    with (folder / f"{name}.log").open("w+") as log:
        # a session of its own, so that nothing of it stays where it is ended
        child = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            code = child.wait(min(check.seconds, left))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            child.wait()
            return "FAILED", f"it had not ended after {min(check.seconds, left):.0f} s"
        log.seek(0)
        told = log.read()
    if code:
        return "FAILED", f"exit code {code}; the last lines:\n" + "\n".join(told.splitlines()[-25:])
    said = verdict.read_text(encoding="utf-8") if verdict.exists() else "it said nothing"
    if said.startswith("not here: "):
        return "not here", said.removeprefix("not here: ")
    return ("passed", said.removeprefix("passed")) if said.startswith("passed") else ("FAILED", said)


def main() -> int:
    wanted = sys.argv[1:] or list(checks.CHECKS)
    unknown = sorted(set(wanted) - set(checks.CHECKS))
    if unknown:
        print(f"no such check: {', '.join(unknown)}; there are {', '.join(checks.CHECKS)}")
        return 2
    if not torch.cuda.is_available():
        print(f"NO GPU: torch {torch.__version__} finds no CUDA device here. NOTHING WAS CHECKED.")
        return NO_GPU
    names = sorted({torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())})
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.device_count()} x {', '.join(names)}")
    count = {"passed": 0, "FAILED": 0, "not here": 0}
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            begun = time.monotonic()
            verdict, why = run(name, checks.CHECKS[name], Path(folder))
            count[verdict] += 1
            tail = f": {why}" if why else ""
            print(f"{verdict}: {name} ({time.monotonic() - begun:.0f} s){tail}", flush=True)
    print(f"{count['passed']} passed, {count['FAILED']} failed, {count['not here']} not here")
    return int(count["FAILED"] > 0)


if __name__ == "__main__":
    sys.exit(main())

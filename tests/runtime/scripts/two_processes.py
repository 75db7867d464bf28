"""Runs the checks on two CPU processes, for test_two_processes.py in one launch; each process leaves its verdicts.

python two_processes.py FOLDER FILE...
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import sys
import traceback
from pathlib import Path


def note_threads() -> None:
    """Note which threads the process still has; at exit, after the runtime has left the process group."""
    tasks = Path("/proc/self/task")
    names = [(task / "comm").read_text().strip() for task in tasks.iterdir()] if tasks.exists() else []
    (Path(sys.argv[1]) / f"threads.{os.environ['RANK']}.json").write_text(json.dumps(names))


atexit.register(note_threads)  # before the accelerator is made: the last registered is called first

from both import FOLDER, me  # noqa: E402

verdicts: dict[str, str] = {}
for name in sys.argv[2:]:
    module = importlib.import_module(name)
    for name, check in list(vars(module).items()):
        if not name.startswith("check_"):
            continue
        try:
            check()
            verdict = "ok"
        except Exception:
            verdict = traceback.format_exc()
        verdicts[name] = verdict
        (FOLDER / f"verdicts.{me}.json").write_text(json.dumps(verdicts))

"""Runs the checks on two CPU processes, for test_two_processes.py in one launch; each process leaves its verdicts."""

from __future__ import annotations

import json
import traceback

import data_checks
import training_checks
from both import FOLDER, me

verdicts: dict[str, str] = {}
for module in (data_checks, training_checks):
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

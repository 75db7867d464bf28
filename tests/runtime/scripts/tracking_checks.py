"""Checks of trackers, the profiler and progress bars on two processes."""

from __future__ import annotations

import io
import json
from unittest import mock

import torch
import torch.distributed as dist
from both import FOLDER, accelerator, everyone, me

from accelerate_runtime import Accelerator, ProfileKwargs, topology
from accelerate_runtime.tracking import JSONLinesTracker
from accelerate_runtime.utils import tqdm


def check_what_all_processes_log_is_written_once() -> None:
    folder = FOLDER / "logged_once"
    mine = Accelerator(log_with="jsonl", project_dir=folder)
    mine.init_trackers("trial", {"lr": 0.1})
    mine.log({"loss": torch.tensor(me + 1.0)}, step=4)
    tracker = mine.get_tracker("jsonl")
    tracker.log_table("answers", ["rank"], [[me]])
    tracker.something_else("that only the other process could do") if me else None
    assert everyone(len(mine.trackers)) == [1, 0]
    leave_nothing_but_trackers(mine)
    lines = [json.loads(line) for line in (folder / "trial.jsonl").read_text().splitlines()]
    assert [line.get("config") or line.get("values") or line["rows"] for line in lines] == [
        {"lr": 0.1},
        {"loss": 1.0},
        [[0]],
    ]


def check_a_tracker_that_each_process_made_runs_on_the_main_one() -> None:
    own = JSONLinesTracker("own", FOLDER / f"made_by_{me}")
    mine = Accelerator(log_with=own)
    mine.init_trackers("trial")
    own.log({"loss": 0.5})
    leave_nothing_but_trackers(mine)
    assert [(FOLDER / f"made_by_{rank}").exists() for rank in (0, 1)] == [True, False]


def leave_nothing_but_trackers(mine: Accelerator) -> None:
    """`end_training`, but for the process group, which other checks still need."""
    with mock.patch.object(topology, "_owns_group", False):
        mine.end_training()
    dist.barrier()


def check_each_process_leaves_its_trace() -> None:
    with accelerator.profile(ProfileKwargs(activities=["cpu"], output_trace_dir=str(FOLDER / "traces"))):
        torch.ones(2, 2) @ torch.ones(2, 2)
    dist.barrier()
    assert {path.name for path in (FOLDER / "traces").iterdir()} == {"profile_0.json", "profile_1.json"}


def check_a_progress_bar_appears_once() -> None:
    shown = io.StringIO()
    assert list(tqdm(range(3), file=shown)) == [0, 1, 2]
    assert [bool(text) for text in everyone(shown.getvalue())] == [True, False]

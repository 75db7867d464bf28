"""Four processes, of which some do not come; the others tell what they are told. For test_stopped_processes.py.

python stopping.py FOLDER RANK PORT
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from accelerate_runtime import Accelerator, PartialState
from accelerate_runtime.utils import MissingProcessError, gather, gather_object, reduce

FOLDER, RANK = Path(sys.argv[1]), int(sys.argv[2])
keeper = dist.TCPStore("127.0.0.1", int(sys.argv[3]), is_master=RANK == 0, timeout=timedelta(seconds=120))
told: dict[str, str] = {}


def meet(name: str, count: int) -> Accelerator:
    """A new process group of the first `count` processes."""
    if dist.is_initialized():
        dist.destroy_process_group()
    PartialState._reset_state()
    keeper.add(name, 1)
    while keeper.add(name, 0) < count:
        time.sleep(0.05)
    store = dist.PrefixStore(name, keeper)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=count, timeout=timedelta(seconds=3))
    accelerator = Accelerator(cpu=True)
    gather(torch.tensor(RANK))
    return accelerator


def note(name: str, error: MissingProcessError) -> None:
    told[name] = str(error)
    told[f"{name} missing"] = str(error.missing)
    (FOLDER / f"{RANK}.json").write_text(json.dumps(told))
    keeper.add(f"{name} over", 1)


def wait_for_the_others(name: str, count: int) -> None:
    while keeper.add(f"{name} over", 0) < count:
        time.sleep(0.05)


accelerator = meet("busy", 4)
if RANK == 1:
    wait_for_the_others("busy", 3)
else:
    try:
        accelerator.gather(torch.ones(1))
    except MissingProcessError as error:
        note("busy", error)

accelerator = meet("main only", 4)
if accelerator.is_main_process:
    try:
        gather_object(["only the main process asks"])
    except MissingProcessError as error:
        note("main only", error)
else:
    wait_for_the_others("main only", 1)

accelerator = meet("failed", 4)
if RANK == 3:
    raise ValueError("no such file")
try:
    reduce(torch.ones(1))
except MissingProcessError as error:
    note("failed", error)

accelerator = meet("ended", 3)
if RANK == 2:
    accelerator.wait_for_everyone()
    accelerator.end_training()
    sys.exit()
try:
    accelerator.wait_for_everyone()
    accelerator.wait_for_everyone()
except MissingProcessError as error:
    note("ended", error)

accelerator = meet("killed", 2)
model = accelerator.prepare(torch.nn.Linear(1, 1))
if RANK == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    accelerator.backward(model(torch.ones(1)).sum())
except MissingProcessError as error:
    note("killed", error)
os._exit(0)

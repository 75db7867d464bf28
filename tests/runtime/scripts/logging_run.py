"""A run that logs, for test_tracker_clients.py: `logging_run.py TRACKER FOLDER INIT_KWARGS [forget|crash]`."""

from __future__ import annotations

import json
import sys

import numpy as np
import torch

from accelerate_runtime import Accelerator

name, folder, init_kwargs = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
ending = sys.argv[4] if len(sys.argv) > 4 else ""

accelerator = Accelerator(log_with=name, project_dir=folder)
config = {"learning_rate": 0.01, "epochs": 3, "nesterov": False, "optimizer": "sgd"}
accelerator.init_trackers("trial", config, init_kwargs={name: init_kwargs})
for step in range(3):
    accelerator.log({"loss": torch.tensor(1.0 / (step + 1)), "train_acc": np.float32(0.5 * step)}, step=step)

if not ending:
    tracker = accelerator.get_tracker(name)
    assert tracker.tracker is accelerator.get_tracker(name, unwrap=True)
    picture = np.full((8, 9, 3), 200, dtype=np.uint8)
    for log_more in (
        lambda: tracker.log_images({"picture": [picture, picture // 2]}, step=2),
        lambda: tracker.log_table("answers", columns=["question", "answer"], data=[["1+1", 2], ["2+2", 4]], step=2),
    ):
        try:
            log_more()
        except NotImplementedError as error:
            print(error)
    accelerator.end_training()
    accelerator.end_training()
elif ending == "crash":
    raise RuntimeError("as a script does that has a fault")

"""Experiment trackers: one file each, found by name.

    accelerator = Accelerator(log_with="tensorboard", project_dir="runs")
    accelerator.init_trackers("my_project", config={"lr": 0.1})
    accelerator.log({"loss": loss}, step=step)
    accelerator.end_training()

A tracker of your own is a subclass of GeneralTracker: pass an object of it (or the class) as `log_with`, register the
class by `register_tracker_class`, or offer it from a package by an entry point of the group
`accelerate_runtime.trackers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attach

_HOMES = {
    "AimTracker": "tracking.aim",
    "ClearMLTracker": "tracking.clearml",
    "CometMLTracker": "tracking.comet_ml",
    "DVCLiveTracker": "tracking.dvclive",
    "GeneralTracker": "tracking.base",
    "JSONLinesTracker": "tracking.jsonl",
    "LOGGER_TYPE_TO_CLASS": "tracking.registry",
    "LoggerType": "tracking.registry",
    "MLflowTracker": "tracking.mlflow",
    "SwanLabTracker": "tracking.swanlab",
    "TensorBoardTracker": "tracking.tensorboard",
    "TrackioTracker": "tracking.trackio",
    "WandBTracker": "tracking.wandb",
    "filter_trackers": "tracking.registry",
    "get_available_trackers": "tracking.registry",
    "on_main_process": "tracking.base",
    "register_tracker_class": "tracking.registry",
}

__getattr__, __dir__, __all__ = attach(__name__, _HOMES)

if TYPE_CHECKING:
    from .aim import AimTracker as AimTracker
    from .base import GeneralTracker as GeneralTracker, on_main_process as on_main_process
    from .clearml import ClearMLTracker as ClearMLTracker
    from .comet_ml import CometMLTracker as CometMLTracker
    from .dvclive import DVCLiveTracker as DVCLiveTracker
    from .jsonl import JSONLinesTracker as JSONLinesTracker
    from .mlflow import MLflowTracker as MLflowTracker
    from .registry import (
        LOGGER_TYPE_TO_CLASS as LOGGER_TYPE_TO_CLASS,
        LoggerType as LoggerType,
        filter_trackers as filter_trackers,
        get_available_trackers as get_available_trackers,
        register_tracker_class as register_tracker_class,
    )
    from .swanlab import SwanLabTracker as SwanLabTracker
    from .tensorboard import TensorBoardTracker as TensorBoardTracker
    from .trackio import TrackioTracker as TrackioTracker
    from .wandb import WandBTracker as WandBTracker

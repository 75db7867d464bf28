"""Files written by one process for all."""

from __future__ import annotations

import os
from typing import Any

import torch

from . import topology


def save(obj: Any, f: str | os.PathLike[str]) -> None:
    """`torch.save(obj, f)`, on the main process only."""
    if topology.current().is_main_process:
        torch.save(obj, f)

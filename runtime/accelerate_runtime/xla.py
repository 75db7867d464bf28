"""torch_xla: whether to train with it, and its devices. It is imported only where it is used.

One process drives all devices that it has: arrays are divided over them (SPMD), and XLA exchanges what must be.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
from typing import Any, NoReturn

import torch

from . import devices
from .environment import parse_flag_from_env

logger = logging.getLogger(__name__)

INSTALL = "pip install 'torch==2.9.*' 'torch_xla==2.9.*'"
_ASKS = "PJRT_DEVICE"


def is_asked_for() -> bool:
    """Whether PJRT_DEVICE names what to run on, torch_xla is installed, and USE_TORCH_XLA=0 does not switch it off."""
    asked = os.environ.get(_ASKS)
    if not asked or not parse_flag_from_env("USE_TORCH_XLA", True):
        return False
    if importlib.util.find_spec(devices.XLA.packages[0]) is None:
        logger.warning("%s=%s is set, but torch_xla is not installed, and not used: %s", _ASKS, asked, INSTALL)
        return False
    return True


@functools.cache
def device() -> torch.device:
    """The device that stands for all of this process's. To be called before anything lies on one."""
    import torch_xla
    import torch_xla.runtime

    torch_xla.runtime.use_spmd()
    found: torch.device = torch_xla.device()
    return found


@functools.cache
def mesh() -> Any:
    """All devices, in one dimension named "data"; after `device`."""
    import numpy
    import torch_xla.distributed.spmd
    import torch_xla.runtime

    count = torch_xla.runtime.global_runtime_device_count()
    return torch_xla.distributed.spmd.Mesh(numpy.arange(count), (count,), ("data",))


def refuse(why: str) -> NoReturn:
    """Raise, for training that was asked to go through XLA and cannot."""
    raise RuntimeError(f"training by XLA (strategy 'xla') was asked for, {why}")

"""The global random states of a process, in the form that Accelerate's files have."""

from __future__ import annotations

import random
from typing import Any

import torch

from .. import devices
from ..random import set_seed
from ..topology import Topology


def collect(place: Topology) -> dict[str, Any]:
    """The states of Python's, NumPy's and torch's generators, those of the device included."""
    import numpy

    states: dict[str, Any] = {
        "random_state": random.getstate(),
        "numpy_random_seed": numpy.random.get_state(),
        "torch_manual_seed": torch.get_rng_state(),
    }
    if place.device.type != "cpu":
        states[devices.random_states_key(place.device)] = devices.get_random_states(place.device)
    return states


def restore(states: dict[str, Any], place: Topology) -> None:
    """Set the generators to what `collect` found. A device's state that the file lacks is left as it is."""
    random.setstate(states["random_state"])
    if "numpy_random_seed" in states:
        import numpy

        numpy.random.set_state(states["numpy_random_seed"])
    torch.set_rng_state(states["torch_manual_seed"])
    if place.device.type != "cpu" and devices.random_states_key(place.device) in states:
        devices.set_random_states(place.device, states[devices.random_states_key(place.device)])


def restore_apart(states: dict[str, Any], place: Topology) -> None:
    """For a process that the checkpoint knows nothing of: go on from the main process's state, on a path of its own."""
    restore(states, place)
    set_seed((int(torch.empty((), dtype=torch.int64).random_()) + place.process_index) % 2**32)

"""Seeds, and random states shared between processes."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from . import division, topology
from .collectives import broadcast
from .devices import seed_all
from .division import Division
from .waiting import together


def set_seed(seed: int, device_specific: bool = False, deterministic: bool = False) -> None:
    """Seed Python's, NumPy's and torch's generators (all devices).

    Args:
        seed: the seed; the same on every process.
        device_specific: add the process's index, so that processes draw different numbers (but for those that work on
            one model together).
        deterministic: also ask torch for deterministic algorithms.
    """
    if device_specific:
        seed += division.current().place.process_index
    random.seed(seed)
    try:
        import numpy
    except ModuleNotFoundError:
        pass
    else:
        numpy.random.seed(seed)
    seed_all(seed)
    if deterministic:
        torch.use_deterministic_algorithms(True)


def shared_seed() -> int:
    """A seed drawn by every process, of which all get the main one's: afterwards the generators are as far as before.

    The draw is the one that a `RandomSampler` makes for itself on one process.
    """
    drawn = torch.empty((), dtype=torch.int64).random_()
    return int(broadcast(drawn).item())


def share_generator(generator: torch.Generator) -> None:
    """Give every process the main process's state of `generator`."""
    state = generator.get_state()
    generator.set_state(broadcast(state.clone()))


def synchronize_rng_state(rng_type: str | None = None, generator: torch.Generator | None = None) -> None:
    """Give every process the main process's random state.

    Args:
        rng_type: "torch", "cuda" (or another accelerator's name), or "generator" for the one passed.

    Raises:
        ValueError: another `rng_type`.
    """
    if topology.current().num_processes == 1:
        return
    if rng_type == "torch":
        torch.set_rng_state(broadcast(torch.get_rng_state()))
    elif rng_type == "generator":
        if generator is not None:
            share_generator(generator)
    elif rng_type == topology.current().device.type != "cpu":
        module = torch.get_device_module(rng_type)
        module.set_rng_state(broadcast(module.get_rng_state()))
    else:
        raise ValueError(f"rng_type={rng_type!r}: allowed here are 'torch', 'generator' and the accelerator's own name")


def synchronize_rng_states(rng_types: Iterable[str], generator: torch.Generator | None = None) -> None:
    """`synchronize_rng_state` for each of `rng_types`."""
    for rng_type in rng_types:
        synchronize_rng_state(rng_type, generator)


def draw_alike(division: Division) -> None:
    """Give the processes that have one part of the data the random states of the first of them (Python's, NumPy's,
    torch's, the device's): they must draw the same augmentations, and drop the same activations."""
    module = None
    if division.place.device.type != "cpu":
        module = torch.get_device_module(division.place.device)
    mine: list[Any] = [global_states(), None if module is None else module.get_rng_state()]
    together("sharing random states", dist.broadcast_object_list, mine, src=division.leader, group=division.together)
    set_global_states(mine[0])
    if module is not None:
        module.set_rng_state(mine[1])


class ForkedRandomness:
    """A random state of its own for code that draws from the global generators.

    Code inside `with forked:` sees Python's, NumPy's and torch's CPU generators as `seed` left them or as the last such
    block did; outside, they are as if it had never run. So a sampler of unknown make draws alike on every process.
    """

    def __init__(self, seed: int) -> None:
        self._seed: int | None = seed
        self.inner: tuple[object, ...] | None = None
        """The states inside; None before the first block."""

    @contextmanager
    def __call__(self) -> Iterator[None]:
        outer = global_states()
        if self.inner is None:
            assert self._seed is not None
            random.seed(self._seed)
            torch.default_generator.manual_seed(self._seed)
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed(self._seed % 2**32)
        else:
            set_global_states(self.inner)
        try:
            yield
        finally:
            self.inner = global_states()
            set_global_states(outer)


def global_states() -> tuple[object, ...]:
    """The states of Python's, torch's (CPU) and NumPy's global generators."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), torch.get_rng_state(), numpy.random.get_state() if numpy is not None else None


def set_global_states(states: tuple[object, ...]) -> None:
    """Go back to what `global_states` gave."""
    python, cpu, numpy_state = states
    random.setstate(python)  # type: ignore[arg-type]
    torch.set_rng_state(cpu)  # type: ignore[arg-type]
    if numpy_state is not None:
        sys.modules["numpy"].random.set_state(numpy_state)

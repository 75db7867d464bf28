"""The Mersenne twisters of Python, NumPy and torch in one form: seeded, drawn from, and how far each has come."""

from __future__ import annotations

import random
import sys
from abc import ABC, abstractmethod
from typing import Any

import torch

from . import generators
from .generators import WORDS


class Twister(ABC):
    """A Mersenne twister: a global one, or a replica of our own.

    Args:
        of: the generator itself.
    """

    name: str

    def __init__(self, of: Any) -> None:
        self.of = of

    @abstractmethod
    def seed(self, seed: int) -> None: ...

    @abstractmethod
    def draw(self) -> int:
        """A number of 63 bits or so."""

    @abstractmethod
    def skip(self, words: int) -> None:
        """Draw as many 32-bit words."""

    @abstractmethod
    def snapshot(self) -> Any:
        """Something to compare by `generators.same`, and for the next two to read."""

    @abstractmethod
    def block(self, snapshot: Any) -> Any:
        """The block of words that it draws from."""

    @abstractmethod
    def drawn(self, snapshot: Any) -> int:
        """How many words of the block it has drawn."""

    @abstractmethod
    def replica(self) -> Twister:
        """Another one of this kind."""


class PythonTwister(Twister):
    """One of the module `random`, or that module."""

    name = "python"

    def seed(self, seed: int) -> None:
        self.of.seed(seed)

    def draw(self) -> int:
        return int(self.of.getrandbits(63))

    def skip(self, words: int) -> None:
        self.of.getrandbits(32 * words)

    def snapshot(self) -> Any:
        return self.of.getstate()[1]

    def block(self, snapshot: Any) -> Any:
        return snapshot[:-1]

    def drawn(self, snapshot: Any) -> int:
        return int(snapshot[-1])

    def replica(self) -> Twister:
        return PythonTwister(random.Random())


class NumpyTwister(Twister):
    """A RandomState, or the module `numpy.random`.

    Args:
        bits: its bit generator.
    """

    name = "numpy"

    def __init__(self, of: Any, bits: Any) -> None:
        super().__init__(of)
        self.bits = bits

    def seed(self, seed: int) -> None:
        self.of.seed(seed % 2**32)

    def draw(self) -> int:
        return int.from_bytes(self.of.bytes(8), "little")

    def skip(self, words: int) -> None:
        self.of.bytes(4 * words)

    def snapshot(self) -> Any:
        return generators.numpy_words(self.bits)

    def block(self, snapshot: Any) -> Any:
        return snapshot[: 4 * WORDS]

    def drawn(self, snapshot: Any) -> int:
        return int.from_bytes(snapshot[4 * WORDS :], sys.byteorder)

    def replica(self) -> Twister:
        module = sys.modules["numpy.random"]
        bits = module.MT19937()
        return NumpyTwister(module.RandomState(bits), bits)


class TorchTwister(Twister):
    """A generator of the CPU."""

    name = "torch"

    def seed(self, seed: int) -> None:
        self.of.manual_seed(seed)

    def draw(self) -> int:
        return int(torch.empty((), dtype=torch.int64).random_(generator=self.of))

    def skip(self, words: int) -> None:
        torch.empty(words, dtype=torch.int32).random_(generator=self.of)

    def snapshot(self) -> Any:
        # aten/src/ATen/CPUGeneratorImpl.cpp: the seed, how many are left (4 bytes), two more fields, the block
        return self.of.get_state()

    def block(self, snapshot: Any) -> Any:
        return snapshot[24 : 24 + 8 * WORDS]

    def drawn(self, snapshot: Any) -> int:
        return WORDS + 1 - int(snapshot[8:12].view(torch.int32))

    def replica(self) -> Twister:
        return TorchTwister(torch.Generator())


def global_twisters() -> list[Twister]:
    """The global generators; NumPy's where something has imported it, and left it the Mersenne twister that it is."""
    found: list[Twister] = [PythonTwister(random), TorchTwister(torch.default_generator)]
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and type(bits := numpy.get_bit_generator()).__name__ == "MT19937":
        found.append(NumpyTwister(numpy, bits))
    return found

"""Random generators that the parts of a loader draw from: finding them, and their states as plain data."""

from __future__ import annotations

import ctypes
import importlib
import random
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import torch

from .. import devices

GLOBAL = ("python", "torch", "numpy")
WORDS = 624
"""32-bit words that a Mersenne twister makes at once."""
_PLAIN = (int, float, complex, bool, str, bytes, type(None))
_NOTHING: dict[str, Any] = {}
_BYTES, _ARRAY = "uint8 as bytes", "array as bytes"

Generators = dict[str, Any]
States = dict[str, Any]


def global_generators(names: Iterable[str] = GLOBAL) -> Generators:
    """The global generators of the CPU; NumPy's only where something has imported it."""
    found: Generators = {}
    for name in names:
        if name == "python":
            found[name] = random
        elif name == "torch":
            found[name] = torch.default_generator
        elif "numpy" in sys.modules:
            found[name] = sys.modules["numpy"].random
    return found


def device_generators() -> Generators:
    """The generator of the accelerator in use, if there is one."""
    accelerator = devices.accelerator()
    if accelerator is None or not hasattr(module := torch.get_device_module(accelerator), "default_generators"):
        return {}
    return {"device": module.default_generators[module.current_device()]}


def held_generators(holders: Mapping[str, Any]) -> Generators:
    """The generators that are attributes of `holders`, by their path ("sampler.generator")."""
    return {
        f"{path}.{name}": value
        for path, holder in holders.items()
        for name, value in getattr(holder, "__dict__", _NOTHING).items()
        if _is_generator(type(value))  # type: ignore[arg-type]  # mypy finds type[Any] not hashable
    }


@lru_cache(maxsize=1024)
def _is_generator(kind: type) -> bool:
    if issubclass(kind, (torch.Generator, random.Random)):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, (numpy.random.Generator, numpy.random.RandomState))


def read(generators: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> States:
    """Their states, to be given to `write` or `pack`.

    Args:
        before: what was read a moment ago; NumPy's global state, which takes 75 microseconds, is read again only if the
            generator has gone on since.
    """
    states = {}
    for name, generator in generators.items():
        if name == "numpy" and before is not None and _numpy_is_at(generator, before.get(name)):
            states[name] = before[name]
        else:
            states[name] = read_one(generator)
    return states


def _numpy_is_at(module: Any, state: Any) -> bool:
    """Whether NumPy's global generator is still at `state`; a second normal number that waits could have gone."""
    bits = module.get_bit_generator()
    if state is None or state["has_gauss"] or not type(bits).__name__ == state["bit_generator"] == "MT19937":
        return False
    known = state["state"]
    return bool(numpy_words(bits) == known["key"].tobytes() + known["pos"].to_bytes(4, sys.byteorder))


def numpy_words(bits: Any) -> bytes:
    """The words of NumPy's Mersenne twister, and how many are drawn. Its `state` takes 30 times longer."""
    return ctypes.string_at(bits.ctypes.state_address, 4 * WORDS + 4)  # numpy/random/src/mt19937/mt19937.h


def write(states: Mapping[str, Any], generators: Mapping[str, Any]) -> None:
    """Put `states` back into the generators of the same names.

    Raises:
        ValueError: there is no generator for one of them.
    """
    for name, state in states.items():
        if name == "numpy" and name not in generators:
            importlib.import_module("numpy")
            write_one(global_generators(["numpy"])["numpy"], state)
            continue
        if name not in generators:
            raise ValueError(
                f"the loader's state has one of a random generator at {name!r}, but this loader has none there: build "
                "the loader as it was when the state was saved."
            )
        write_one(generators[name], state)


def read_one(generator: Any) -> Any:
    """The state of one."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if generator is random or isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "get_state"):
        return generator.get_state(legacy=False)
    return generator.bit_generator.state


def write_one(generator: Any, state: Any) -> None:
    """Put it back."""
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif generator is random or isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


def same(one: Any, other: Any) -> bool:
    """Whether two states that `read` gave are the same."""
    if one is other:
        return True
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool((one == other).all()) if hasattr(one, "all") else bool(one == other)


def pack(value: Any) -> Any:
    """`value`, with NumPy's arrays and numbers replaced, and random states of torch as bytes.

    Raises:
        TypeError: it holds something else than tensors, arrays, numbers, strings, bytes, lists, tuples and dicts.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        if value.dtype != torch.uint8 or value.ndim != 1:
            return value.detach().clone()
        value = value.cpu().contiguous()
        return {_BYTES: ctypes.string_at(value.data_ptr(), value.numel())}
    if isinstance(value, dict):
        return {pack(key): pack(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)(map(pack, value))
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
        return {_ARRAY: value.tobytes(), "dtype": value.dtype.str, "shape": value.shape} if value.ndim else value.item()
    raise TypeError(
        f"the state of a loader's dataset holds a {type(value).__name__}; it can hold tensors, arrays, numbers, "
        "strings, bytes, lists, tuples and dicts."
    )


def unpack(value: Any) -> Any:
    """What `pack` was given."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(unpack, value))
    if not isinstance(value, dict):
        return value
    if _BYTES in value:
        return torch.frombuffer(bytearray(value[_BYTES]), dtype=torch.uint8)
    if _ARRAY in value:
        array = importlib.import_module("numpy").frombuffer(value[_ARRAY], dtype=value["dtype"])
        return array.reshape(value["shape"]).copy()
    return {key: unpack(item) for key, item in value.items()}

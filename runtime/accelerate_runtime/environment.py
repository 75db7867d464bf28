"""Environment variables: reading them, and changing them for a while."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T", bound=Callable[..., Any])

_TRUE, _FALSE = {"1", "true", "yes", "y", "on", "t"}, {"0", "false", "no", "n", "off", "f"}


def str_to_bool(value: str, to_bool: bool = False) -> int | bool:
    """Whether a word means yes (1, true, yes, y, on, t) or no, in any case.

    Args:
        to_bool: return True or False; by default 1 or 0.

    Raises:
        ValueError: the word means neither.
    """
    word = value.lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(f"{value!r} is neither true nor false")
    return word in _TRUE if to_bool else int(word in _TRUE)


def parse_flag_from_env(key: str, default: bool = False) -> bool:
    """A yes/no environment variable; `default` where it is not set, no where it is empty.

    Raises:
        ValueError: it is set to something that is neither.
    """
    text = os.environ.get(key)
    if text is None:
        return default
    if text == "":
        return False
    try:
        return str_to_bool(text, to_bool=True) is True
    except ValueError:
        raise ValueError(f"environment variable {key}={text!r} is neither true nor false") from None


def parse_choice_from_env(key: str, default: str = "no") -> str:
    """An environment variable, or `default` where it is not set."""
    return os.environ.get(key, str(default))


def get_int_from_env(env_keys: Iterable[str], default: int) -> int:
    """The first of these environment variables that holds a number of 0 or more, else `default`.

    Raises:
        ValueError: one of them is set to something that is not a whole number.
    """
    numbers = (number_from_env(name) for name in env_keys)
    return next((number for number in numbers if number is not None and number >= 0), default)


def number_from_env(key: str, least: int | None = None) -> int | None:
    """A whole number in an environment variable; None where it is not set, or empty.

    Raises:
        ValueError: it is set to something else, or to less than `least`.
    """
    text = os.environ.get(key)
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"environment variable {key}={text!r} is not a whole number") from None
    if least is not None and number < least:
        raise ValueError(f"environment variable {key}={text!r}: it must be {least} or more")
    return number


@contextmanager
def patch_environment(**kwargs: Any) -> Iterator[None]:
    """Set environment variables inside the block; afterwards they are as before.

    Args:
        kwargs: the variables, their names in any case (they are set in upper case) and their values of any type.
    """
    changes = {name.upper(): str(value) for name, value in kwargs.items()}
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def clear_environment() -> Iterator[None]:
    """Empty the environment inside the block; afterwards it is as before, whatever was set in the block."""
    with _restored(lambda name: True):
        os.environ.clear()
        yield


def purge_accelerate_environment(func_or_cls: T) -> T:
    """Decorator of a test function or a test class: what it sets of `ACCELERATE_…` variables is gone afterwards.

    Of a class, and of those derived from it, every method whose name begins with `test` is decorated.
    """
    if not isinstance(func_or_cls, type):
        return _purged(func_or_cls)  # type: ignore[return-value]
    _purge_tests(func_or_cls)
    type.__setattr__(func_or_cls, "__init_subclass__", classmethod(lambda cls, **kwargs: _purge_tests(cls)))
    return func_or_cls


def _purge_tests(cls: type) -> None:
    for name in dir(cls):
        method = getattr(cls, name)
        if name.startswith("test") and callable(method) and not hasattr(method, "_is_purged"):
            setattr(cls, name, _purged(method))


def _purged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _restored(lambda name: name.startswith("ACCELERATE_")):
            return function(*args, **kwargs)

    run._is_purged = True  # type: ignore[attr-defined]
    return run


@contextmanager
def _restored(concerned: Callable[[str], bool]) -> Iterator[None]:
    """Afterwards, those variables are as before that `concerned` says yes to."""
    before = {name: value for name, value in os.environ.items() if concerned(name)}
    try:
        yield
    finally:
        for name in [name for name in os.environ if concerned(name) and name not in before]:
            del os.environ[name]
        os.environ.update(before)

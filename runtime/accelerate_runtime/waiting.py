"""Which call each process is in, so that an error can name the processes that did not come.

Calls are counted in this process; now and then the count goes into the process group's store, and at once where a
process fails, ends or gives up waiting. A process whose wait failed looks there for the others.
"""

from __future__ import annotations

import atexit
import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from .devices import CPU

T = TypeVar("T")

logger = logging.getLogger(__name__)

_EVERY = 1.0  # seconds between two notes of a process that gets on
_GRACE = 5.0  # seconds that a process gives the others to say that they wait too
_PATIENCE = 60.0  # seconds after which a process that gathers a whole model says that it waits
_KEY = "accelerate_runtime/process/{}"
_PACKAGES = (str(Path(__file__).parent), str(Path(torch.__file__).parent), "<frozen")


class MissingProcessError(RuntimeError):
    """Some processes did not come to a call that all must make.

    Attributes:
        missing: their indices; empty where all came, but to other calls.
    """

    def __init__(self, message: str, missing: list[int]) -> None:
        super().__init__(message)
        self.missing = missing


class _Progress:
    """This process's."""

    calls = 0
    noted = 0.0
    over = False


_mine = _Progress()


def begin() -> None:
    """The process group is there: from now on note how this process ends, if it does."""
    _mine.calls, _mine.over = 0, False
    _note("calls", "its set-up")
    _mine.noted = 0.0  # the first call is noted at once
    if not isinstance(sys.excepthook, _Hook):
        sys.excepthook = _Hook(sys.excepthook)
        atexit.register(end)


def end() -> None:
    """The process leaves the group, or ends."""
    if dist.is_initialized():
        _note("ended")


def together(name: str, action: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """`action(*args, **kwargs)`, which returns where all processes call it.

    Args:
        name: how messages call it.

    Raises:
        MissingProcessError: some did not, until the process group's timeout or because they ended.
    """
    _mine.calls += 1
    now = time.monotonic()
    if now - _mine.noted > _EVERY:
        _note("calls", name)
    try:
        return action(*args, **kwargs)
    except RuntimeError as error:
        explain(name, error, time.monotonic() - now)
        raise


def for_whole(name: str, action: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """As `together`, for what gathers the parts of a model, which scripts like to call on the main process alone: says
    so on the log where the others have not come for a minute, long before the process group's timeout."""
    timer = threading.Timer(_PATIENCE, _say_that_it_waits, [name, _place()])
    timer.daemon = True
    timer.start()
    try:
        return together(name, action, *args, **kwargs)
    finally:
        timer.cancel()


def _say_that_it_waits(name: str, place: str) -> None:
    logger.warning(
        "process %d has waited %.0f s in %s (%s), which gathers a model's parts from all processes: every process must "
        "call it, not only the main one. Take it out of `if accelerator.is_main_process`, and save what the main "
        "process gets.",
        dist.get_rank() if dist.is_initialized() else 0,
        _PATIENCE,
        name,
        place,
    )


def explain(name: str, error: RuntimeError, waited: float | None = None, place: str | None = None) -> None:
    """Raise MissingProcessError instead of `error`, if that tells of a lost connection or a timeout.

    Args:
        waited: for how many seconds, where that is known.
        place: the script's line that it came from; None is the one that is running.
    """
    text = str(error)
    words = (str(CPU.backend), "Timed out", "timed out")
    lost = isinstance(error, dist.DistError) or any(word in text for word in words)
    if lost and not isinstance(error, MissingProcessError) and dist.is_initialized():
        _raise_missing(name, error, "" if waited is None else f" {waited:.0f} s", place or _place())


def _raise_missing(name: str, error: RuntimeError, waited: str, place: str) -> NoReturn:
    me = dist.get_rank()
    _note("waits", name, place)
    records = _records([rank for rank in range(dist.get_world_size()) if rank != me])
    came = [rank for rank, record in records.items() if _came(record)]
    missing = [rank for rank in records if rank not in came]
    here = f"process {me} waited{waited} in {name} (call {_mine.calls}, {place})"
    told = "; ".join(f"process {rank} {_said(records[rank])}" for rank in missing)
    if missing:
        too = f" Process{'es' * (len(came) > 1)} {', '.join(map(str, came))} waited too." if came else ""
        message = (
            f"{here}, but not every process came: {told}.{too} All processes must make the same calls: look for an "
            "error of that process in the log, for a call inside `if accelerator.is_main_process`, and for loops of "
            "different lengths."
        )
    else:
        others = "; ".join(f"process {rank} {_said(record)}" for rank, record in records.items())
        message = (
            f"{here}, and the others wait too, perhaps for something else: {others}. Are they in the same call, with "
            "the same shapes? ACCELERATE_DEBUG_MODE=1 compares them before each call."
        )
    raise MissingProcessError(f"{message} (What failed: {str(error).splitlines()[0][:200]})", missing) from error


def _came(record: dict[str, Any] | None) -> bool:
    return record is not None and record["state"] == "waits" and record["calls"] == _mine.calls


def _said(record: dict[str, Any] | None) -> str:
    """What is known of a process, as the end of a sentence."""
    if record is None:
        return "has made no call yet, or its records cannot be reached (process 0 may keep them)"
    last = f"{record['name']} (call {record['calls']}, {record['place']})"
    if record["state"] == "failed":
        return f"stopped with {record['name']} ({record['place']})"
    if record["state"] == "ended":
        return f"has ended, after call {record['calls']}"
    if record["state"] == "waits":
        return f"waits in {last}"
    return f"was last seen {max(0.0, time.time() - record['time']):.0f} s ago, in {last}"


def _note(state: str, name: str = "", place: str | None = None) -> None:
    """Tell the others, if they can be reached."""
    if _mine.over:
        return
    _mine.noted, _mine.over = time.monotonic(), state in ("failed", "ended")
    record = {"state": state, "name": name, "calls": _mine.calls, "place": place or _place(), "time": time.time()}
    with suppress(RuntimeError, ValueError):  # there is no group any more, or what keeps the store has ended
        _store().set(_KEY.format(dist.get_rank()), json.dumps(record))


def _records(ranks: list[int]) -> dict[int, dict[str, Any] | None]:
    """What the processes told last; they get a while to say that they wait, or have ended.

    Where the way to the store is cut, it never answers, and whoever asks waits for ever: it is asked beside us.
    """
    records: dict[int, dict[str, Any] | None] = dict.fromkeys(ranks)
    look = threading.Thread(target=_look, args=(records,), daemon=True)
    look.start()
    look.join(2 * _GRACE)
    if look.is_alive():
        _mine.over = True  # nor can we tell anybody anything
    return dict(records)


def _look(records: dict[int, dict[str, Any] | None]) -> None:
    """Fill in what the processes told."""
    ranks, until = list(records), time.monotonic() + _GRACE
    with suppress(RuntimeError, ValueError):
        store = _store()
        while time.monotonic() < until:
            for rank in ranks:
                if store.check([_KEY.format(rank)]):
                    records[rank] = json.loads(store.get(_KEY.format(rank)))
            if all(record is not None and record["state"] != "calls" for record in records.values()):
                break
            time.sleep(0.1)


def _store() -> Any:
    return distributed_c10d._get_default_store()


def _place() -> str:
    """The script's own line that is running."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGES):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


class _Hook:
    """Notes what a process stopped with, then lets Python show it.

    What came out of an engine's own exchange, in the middle of a model, is explained here.
    """

    def __init__(self, before: Callable[..., Any]) -> None:
        self.before = before

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if dist.is_initialized() and not isinstance(error, KeyboardInterrupt):
            frames = traceback.extract_tb(trace)
            own = [frame for frame in frames if not frame.filename.startswith(_PACKAGES)] or frames
            place = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"
            if isinstance(error, RuntimeError):
                try:
                    explain("an exchange between the processes", error, place=place)
                except MissingProcessError as explained:
                    kind, error, trace = MissingProcessError, explained, explained.__traceback__
            _note("failed", f"{kind.__name__}: {error}"[:300], place)
        self.before(kind, error, trace)

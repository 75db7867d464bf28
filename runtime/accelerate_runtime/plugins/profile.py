"""What to profile, and where the traces go."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .base import KwargsHandler

if TYPE_CHECKING:
    from torch.profiler import profile as Profiler

_SCHEDULE = ("wait", "warmup", "active", "repeat", "skip_first", "skip_first_wait")


@dataclass
class ProfileKwargs(KwargsHandler):
    """Arguments of `torch.profiler.profile`, for `accelerator.profile()`.

    Args:
        activities: names of what is recorded, among "cpu", "cuda", "xpu", "mtia" and "hpu"; None is all that is there.
        schedule_option: arguments of `torch.profiler.schedule`, in steps that `profiler.step()` ends: `wait`, `warmup`
            and `active`, and perhaps `repeat`, `skip_first` and `skip_first_wait`. None records the whole block.
        on_trace_ready: called with the profiler where a recording ends.
        record_shapes, profile_memory, with_stack, with_flops, with_modules: as in `torch.profiler.profile`.
        output_trace_dir: a folder for Chrome traces: process 1 writes `profile_1.json` where a recording ends, so that
            with a schedule the file has the last one that ended. No process waits for another.

    Raises:
        ValueError: an entry of `schedule_option` is unknown, or one of the first three is missing.
    """

    activities: list[str] | None = None
    schedule_option: dict[str, int] | None = None
    on_trace_ready: Callable[..., Any] | None = None
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False
    output_trace_dir: str | None = None

    def __post_init__(self) -> None:
        if self.schedule_option is not None:
            _check_schedule(self.schedule_option)

    def build(self) -> Profiler:
        """The profiler, to be entered; it writes no files by itself.

        Raises:
            ValueError: an activity is unknown; the message lists those there are.
        """
        return self._build(self.on_trace_ready)

    @contextmanager
    def run(self, process_index: int) -> Iterator[Profiler]:
        """Profile a block, with this process's trace in `output_trace_dir`."""
        if self.output_trace_dir is None:
            with self.build() as profiler:
                yield profiler
            return
        path = Path(self.output_trace_dir, f"profile_{process_index}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        written = False

        def keep(profiler: Profiler) -> None:
            nonlocal written
            if self.on_trace_ready is not None:
                self.on_trace_ready(profiler)
            _export(profiler, path)
            written = True

        with self._build(keep) as profiler:
            yield profiler
        if not written:
            warnings.warn(
                f"profile(): no trace in {path}: by schedule_option={self.schedule_option} nothing was recorded; call "
                "step() of the profiler in each step",
                stacklevel=3,
            )

    def _build(self, on_trace_ready: Callable[..., Any] | None) -> Profiler:
        from torch import profiler

        activities = None if self.activities is None else [_activity(name) for name in self.activities]
        schedule = None if self.schedule_option is None else profiler.schedule(**self.schedule_option)
        return profiler.profile(
            activities=activities,
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
            with_modules=self.with_modules,
        )


def _activity(name: str) -> Any:
    from torch.profiler import ProfilerActivity

    known = {member.lower(): kind for member, kind in ProfilerActivity.__members__.items()}
    if name not in known:
        raise ValueError(f"ProfileKwargs(activities=...): {name!r} is not one of {', '.join(known)}")
    return known[name]


def _check_schedule(option: Mapping[str, int]) -> None:
    unknown = [name for name in option if name not in _SCHEDULE]
    missing = [name for name in _SCHEDULE[:3] if name not in option]
    if unknown or missing:
        what = f"{unknown[0]!r} is unknown" if unknown else f"{missing[0]!r} is missing"
        raise ValueError(
            f"ProfileKwargs(schedule_option={option!r}): {what}; it has {', '.join(_SCHEDULE[:3])} and perhaps "
            f"{', '.join(_SCHEDULE[3:])}"
        )


def _export(profiler: Profiler, path: Path) -> None:
    try:
        profiler.export_chrome_trace(str(path))
    except RuntimeError as error:
        if "already saved" not in str(error):
            raise
        raise RuntimeError(
            f"ProfileKwargs: on_trace_ready has saved the trace, which torch does once, so {path} cannot be written; "
            "pass one of on_trace_ready and output_trace_dir"
        ) from None

"""What the runtime benchmarks share: timing interleaved rounds, and printing ratios with their spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

Timing = tuple[float, float]
"""Wall and CPU seconds."""


def clock(action: Callable[[], object]) -> Timing:
    """How long `action` takes, in wall time and in this process's CPU time."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - wall, time.process_time() - cpu


def interleave(actions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[Timing]]:
    """Time each of `actions` in every round, in turning order, after one round to warm up."""
    rows: dict[str, list[Timing]] = {name: [] for name in actions}
    for number in range(-1, rounds):
        for name in list(actions) if number % 2 else reversed(actions):
            timing = clock(actions[name])
            if number >= 0:
                rows[name].append(timing)
    return rows


def report(title: str, rows: Mapping[str, list[Timing]], units: int, target: str) -> None:
    """Print, against the first row, the median of each row's ratios round by round, with its quartiles."""
    base, *others = rows
    print(f"{title} (target {target})")
    for index, kind in enumerate(("CPU ", "wall")):
        column = 1 - index
        each = statistics.median(timing[column] for timing in rows[base]) / units * 1e6
        for name in others:
            ratios = sorted(a[column] / b[column] for a, b in zip(rows[name], rows[base], strict=True))
            low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
            print(f"  {kind} {name:18} {statistics.median(ratios):6.3f} x {base} ({low:.3f}-{high:.3f}; {each:.0f} us)")

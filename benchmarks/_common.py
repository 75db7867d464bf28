"""What the runtime benchmarks share: CPU time of work that takes turns, and one line a figure."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from itertools import islice

CHUNK = 10


def take_turns(kinds: Mapping[str, Iterator[object]], rounds: int, chunk: int = CHUNK) -> tuple[float, float]:
    """What a step of "prepared" costs against one of "raw", and "raw again" against "raw" (how far to trust it).

    The iterators run one step each time. They take turns every `chunk` steps, so that a machine which speeds up, slows
    down or does something else meets all; the medians of the ratios of CPU time, round by round, count.
    """
    names = list(kinds)
    for steps in kinds.values():
        list(islice(steps, chunk))
    ratios, again = [], []
    for number in range(rounds):
        turn = number % len(names)
        times = {}
        for name in names[turn:] + names[:turn]:
            start = time.process_time()
            for _ in islice(kinds[name], chunk):
                pass
            times[name] = time.process_time() - start
        ratios.append(2 * times["prepared"] / (times["raw"] + times["raw again"]))
        again.append(times["raw again"] / times["raw"])
    return statistics.median(ratios), statistics.median(again)


def line(name: str, figure: str, value: float, target: float | None, unit: str, accelerate: str, note: str) -> str:
    """A figure beside its target, Accelerate's figure (measured once, elsewhere) and a note."""
    aim = "no target" if target is None else f"target <= {target:.2f}{unit}"
    verdict = "" if target is None else "holds" if value <= target else "MISSED"
    return f"{name:32} {figure:28} {aim:18} {verdict:7} Accelerate {accelerate:7} {note}".rstrip()

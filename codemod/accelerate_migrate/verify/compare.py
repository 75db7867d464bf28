"""How far apart two recorded runs are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Event:
    """One thing a run did: ``value`` is what may differ a little, ``kind`` and ``what`` are what may not.

    ``digest`` tells saved tensors apart bit by bit; other events have none.
    """

    kind: str
    what: str
    value: float
    digest: str = ""


Trace = tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """``parted`` says in words where two runs began to do different things, or is empty where they did the same things.

    ``difference`` is the greatest relative difference of their values; ``identical`` asks for the same bits.
    """

    events: int
    difference: float
    identical: bool
    parted: str = ""


def read_trace(path: Path) -> Trace:
    """The events of a file that the recorder wrote. A last line cut short by a killed process is left out."""
    events = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            events.append(_event(json.loads(line)))
    return tuple(events)


def _event(fields: dict[str, object]) -> Event:
    kind = str(fields["event"])
    if kind == "backward":
        return Event(kind, "", float(str(fields["value"])))
    what = f"{fields.get('optimizer') or fields.get('file')} of {fields['elements']} elements"
    return Event(kind, what, float(str(fields["norm"])), str(fields.get("digest", "")))


def losses(trace: Trace) -> list[float]:
    """The values that ``backward`` started from."""
    return [event.value for event in trace if event.kind == "backward"]


def compare(before: Trace, after: Trace) -> Comparison:
    """Event by event. Runs that did different things are compared up to there, and the result says where that is."""
    difference = 0.0
    identical = len(before) == len(after)
    for number, (old, new) in enumerate(zip(before, after, strict=False), 1):
        if (old.kind, old.what) != (new.kind, new.what):
            parted = f"event {number} was {_words(old)}, and is {_words(new)}"
            return Comparison(number - 1, difference, False, parted)
        difference = max(difference, _relative(old.value, new.value))
        identical = identical and old.value == new.value and old.digest == new.digest
    count = min(len(before), len(after))
    parted = "" if len(before) == len(after) else f"{len(before)} events before, {len(after)} after"
    return Comparison(count, difference, identical, parted)


def one_process_view(ranks: Sequence[Trace]) -> Trace:
    """What several processes did, seen as one: the mean of their losses, and the first one's steps and saves.

    That is the trace of one process with their batches joined, where a loss is a mean over its batch.
    """
    means = iter([sum(values) / len(values) for values in zip(*map(losses, ranks), strict=False)])
    return tuple(
        replace(event, value=next(means, event.value)) if event.kind == "backward" else event for event in ranks[0]
    )


def in_step(ranks: Sequence[Trace]) -> Comparison:
    """Whether all processes held the same parameters after each optimizer step: the worst of them against the first."""
    steps = [tuple(event for event in rank if event.kind == "step") for rank in ranks]
    results = [compare(steps[0], other) for other in steps[1:]] or [compare(steps[0], steps[0])]
    return max(results, key=lambda result: (bool(result.parted), result.difference))


def _words(event: Event) -> str:
    return f"{event.kind} {event.what}".strip()


def _relative(old: float, new: float) -> float:
    if old == new or (old != old and new != new):
        return 0.0
    difference = abs(new - old) / max(abs(old), 1e-12)
    return difference if difference == difference else float("inf")

"""Traces: reading them, and how two of them differ."""

from __future__ import annotations

import json
import math
from pathlib import Path

from accelerate_migrate.verify.compare import Event, compare, in_step, losses, one_process_view, read_trace

BACKWARD = Event("backward", "", 2.0)
STEP = Event("step", "SGD of 10 elements", 3.0)


def save(digest: str) -> Event:
    return Event("save", "net.pt of 10 elements", 3.0, digest)


def test_reading(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    lines = [
        {"event": "backward", "value": 0.1},
        {"event": "step", "optimizer": "Adam", "elements": 4, "norm": 1.5},
        {"event": "save", "file": "net.pt", "elements": 4, "norm": 1.5, "digest": "abc"},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert read_trace(file) == (
        Event("backward", "", 0.1),
        Event("step", "Adam of 4 elements", 1.5),
        Event("save", "net.pt of 4 elements", 1.5, "abc"),
    )


def test_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text('{"event": "backward", "value": 0.5}\n{"event": "ste', encoding="utf-8")
    assert losses(read_trace(file)) == [0.5]


def test_the_same() -> None:
    trace = (BACKWARD, STEP, save("a"))
    result = compare(trace, trace)
    assert result.identical
    assert (result.events, result.difference, result.parted) == (3, 0.0, "")


def test_a_small_difference() -> None:
    result = compare((BACKWARD, STEP), (BACKWARD, Event("step", STEP.what, 3.03)))
    assert not result.identical
    assert not result.parted
    assert math.isclose(result.difference, 0.01)


def test_saved_tensors_of_the_same_norm_are_not_the_same() -> None:
    result = compare((save("a"),), (save("b"),))
    assert result.difference == 0
    assert not result.identical


def test_another_order() -> None:
    result = compare((BACKWARD, STEP), (BACKWARD, BACKWARD))
    assert not result.identical
    assert result.events == 1
    assert result.parted == "event 2 was step SGD of 10 elements, and is backward"


def test_one_stops_early() -> None:
    result = compare((BACKWARD, STEP), (BACKWARD,))
    assert not result.identical
    assert result.parted == "2 events before, 1 after"


def test_what_is_not_a_number() -> None:
    nan = (Event("backward", "", math.nan),)
    assert compare(nan, nan).difference == 0
    assert compare((BACKWARD,), nan).difference == math.inf


def test_ranks_as_one_process() -> None:
    ranks = [(Event("backward", "", 1.0), STEP), (Event("backward", "", 3.0), STEP)]
    assert one_process_view(ranks) == (BACKWARD, STEP)


def test_ranks_in_step() -> None:
    other = (Event("backward", "", 9.0), STEP)
    assert in_step([(BACKWARD, STEP), other]).difference == 0
    drifted = (BACKWARD, Event("step", STEP.what, 6.0))
    assert in_step([(BACKWARD, STEP), other, drifted]).difference == 1.0
    assert in_step([(BACKWARD, STEP), (BACKWARD,)]).parted

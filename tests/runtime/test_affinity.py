"""Processes on the cores near their device."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from accelerate_runtime import affinity
from accelerate_runtime.affinity import override_numa_affinity, parse_cpu_list


def test_lists_of_cores() -> None:
    assert parse_cpu_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert parse_cpu_list("\n") == set()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells of nodes")
def test_processes_take_turns_over_the_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    for node, cores in enumerate((f"{allowed[0]}", f"{allowed[-1]}")):
        folder = tmp_path / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cores},9999\n")
    monkeypatch.setattr(affinity, "_SYS", tmp_path)
    try:
        for index, core in enumerate((allowed[0], allowed[-1], allowed[0])):
            os.sched_setaffinity(0, allowed)
            override_numa_affinity(index)
            assert os.sched_getaffinity(0) == {core}
    finally:
        os.sched_setaffinity(0, allowed)


def test_elsewhere_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(NotImplementedError, match="on Linux only, not on darwin"):
        override_numa_affinity(0)

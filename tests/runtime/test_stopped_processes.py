"""A process that does not come to a call that all must make is named to those who wait."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "stopping.py"

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process was told, by its rank."""
    folder = tmp_path_factory.mktemp("stopping")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    runs = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder), str(rank), port],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    errors = [run.communicate(timeout=240)[1] for run in runs]
    assert [run.returncode for run in runs] == [0, -9, 0, 1], errors[0][-3000:]
    assert "ValueError: no such file" in errors[3]  # shown as ever
    return [json.loads(path.read_text()) if (path := folder / f"{rank}.json").exists() else {} for rank in range(4)]


def test_one_that_does_something_else(told: list[dict[str, Any]]) -> None:
    for rank in (0, 2, 3):
        message = told[rank]["busy"]
        assert told[rank]["busy missing"] == "[1]"
        assert message.startswith(f"process {rank} waited ")
        assert " s in gather (call 2, stopping.py:" in message
        assert "process 1 was last seen" in message
        assert "in gather (call 1, stopping.py:" in message
    others = [rank for rank in (0, 2, 3) if rank != 2]
    assert f"Processes {others[0]}, {others[1]} waited too" in told[2]["busy"]


def test_a_call_of_the_main_process_alone(told: list[dict[str, Any]]) -> None:
    assert told[0]["main only missing"] == "[1, 2, 3]"
    assert "in gather_object" in told[0]["main only"]
    assert "inside `if accelerator.is_main_process`" in told[0]["main only"]


def test_one_that_failed(told: list[dict[str, Any]]) -> None:
    for rank in (0, 1, 2):
        assert told[rank]["failed missing"] == "[3]"
        assert "process 3 stopped with ValueError: no such file (stopping.py:" in told[rank]["failed"]


def test_one_that_ended(told: list[dict[str, Any]]) -> None:
    for rank in (0, 1):
        assert told[rank]["ended missing"] == "[2]"
        assert "in wait_for_everyone (call 3" in told[rank]["ended"]
        assert "process 2 has ended, after call 2" in told[rank]["ended"]


def test_one_that_was_killed_while_gradients_are_exchanged(told: list[dict[str, Any]]) -> None:
    assert told[0]["killed missing"] == "[1]"
    assert told[0]["killed"].startswith("process 0 waited in backward (")
    assert "process 1 was last seen" in told[0]["killed"]

"""Launches that end well or badly: exit codes, no process left over, logs, and machines that find one another."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from .launches import Launcher, appears, is_alive, launched

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="forks a process that has torch, and looks into /proc"),
]
TWO = ("--cpu", "--num_processes", 2)

# Each process leaves its pid; what it does next is told by the second argument.
SCRIPT = """
import os, pathlib, signal, sys, time
folder, rank = pathlib.Path(sys.argv[1]), os.environ["RANK"]
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
(folder / f"pid.{rank}.{attempt}").write_text(str(os.getpid()))
print("rank", rank, "of", os.environ["WORLD_SIZE"], "attempt", attempt)
print("a word on errors", file=sys.stderr)
act = sys.argv[2]
if act == "end": sys.exit()
if rank == "1":
    if act == "raise": raise RuntimeError("out of luck")
    if act == "exit": sys.exit(7)
    if act == "die": os.kill(os.getpid(), signal.SIGKILL)
    if act == "fail once": sys.exit(attempt == "0")
if act == "fail once" and attempt == "1": sys.exit()
(folder / f"sleeps.{rank}").touch()
time.sleep(600)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def pids(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in folder.glob("pid.*")]


@pytest.mark.parametrize(
    ("act", "code", "told"),
    [
        ("raise", 1, "process 1 (pid {}) ended with exit code 1; the other processes were stopped"),
        ("exit", 7, "process 1 (pid {}) ended with exit code 7; the other processes were stopped"),
        ("die", 128 + 9, "process 1 (pid {}) was killed by SIGKILL; the other processes were stopped"),
    ],
)
def test_a_process_that_fails_ends_the_others(tmp_path: Path, script: Path, act: str, code: int, told: str) -> None:
    got = launched(tmp_path, *TWO, script, tmp_path, act)
    assert got.code == code
    assert f"accelerate-runtime: {told.format((tmp_path / 'pid.1.0').read_text())}" == got.err.splitlines()[-1]
    assert got.err.count("RuntimeError: out of luck") == (act == "raise")
    assert "torch/distributed/elastic" not in got.err
    assert not any(map(is_alive, pids(tmp_path)))


def test_a_quiet_launch_says_nothing_of_its_own(tmp_path: Path, script: Path) -> None:
    got = launched(tmp_path, "-q", *TWO, script, tmp_path, "exit")
    assert got.code == 7
    assert got.err.splitlines() == ["a word on errors"] * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_stops_all(tmp_path: Path, script: Path, number: signal.Signals) -> None:
    launcher = Launcher(tmp_path, *TWO, script, tmp_path, "sleep")
    for rank in (0, 1):
        appears(tmp_path / f"sleeps.{rank}")
    os.kill(launcher.pid, number)
    got = launcher.wait()
    assert got.code == 128 + number
    assert f"accelerate-runtime: stopped by {number.name}, and so were the processes" in got.err
    assert len(pids(tmp_path)) == 2
    assert not any(map(is_alive, pids(tmp_path)))


def test_restarts_start_all_processes_again(tmp_path: Path, script: Path) -> None:
    got = launched(tmp_path, *TWO, "--max_restarts", 1, "--monitor_interval", 0.05, script, tmp_path, "fail once")
    assert got.code == 0, got.err
    lines = sorted(got.out.splitlines())
    assert lines == [f"rank {rank} of 2 attempt {attempt}" for rank in (0, 1) for attempt in (0, 1)]


@pytest.mark.parametrize(
    ("flags", "streams", "marked"),
    [
        (["--log_dir", "logs"], {"stdout", "stderr"}, True),
        (["--log_dir", "logs", "--tee", "1", "--role", "teacher"], {"stdout"}, True),
        (["--log_dir", "logs", "-t", "1:2"], {"stderr"}, False),
    ],
)
def test_output_also_goes_to_a_file_of_each_process(
    tmp_path: Path, script: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], streams: set[str], marked: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    got = launched(tmp_path, *TWO, *flags, script, tmp_path, "end")
    assert got.code == 0, got.err
    assert "logs of each process are in logs" in got.err
    files = {path.stem: path for path in (tmp_path / "logs").glob("*/attempt_0/1/*.log")}
    assert set(files) == streams
    if "stdout" in files:
        assert files["stdout"].read_text() == "rank 1 of 2 attempt 0\n"
    if "stderr" in files:
        assert files["stderr"].read_text() == "a word on errors\n"
    role = "teacher" if "teacher" in flags else "default"
    assert (f"[{role}1]:rank 1 of 2 attempt 0" in got.out) == marked  # and is shown, marked with its process


def test_without_logs_no_folder_is_left(tmp_path: Path, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    assert launched(tmp_path, *TWO, script, tmp_path, "end").code == 0
    assert list((tmp_path / "temporary").iterdir()) == []


def test_what_cannot_be_logged_is_one_line(tmp_path: Path, script: Path) -> None:
    (tmp_path / "file").touch()
    for flags, told in ((["--log_dir", tmp_path / "file"], "file"), (["--tee", "x"], "tee is 'x': give 1")):
        got = launched(tmp_path, *TWO, *flags, script, tmp_path, "end")
        assert (got.code, got.err.count("\n")) == (2, 1)
        assert told in got.err
    assert pids(tmp_path) == []


def test_a_port_in_use_is_named(tmp_path: Path, script: Path) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        got = launched(tmp_path, *TWO, "--main_process_port", port, script, tmp_path, "end")
    assert got.code == 2
    assert f"port {port} of this machine cannot be used (Address already in use)" in got.err
    assert pids(tmp_path) == []


def test_two_jobs_at_once(tmp_path: Path, script: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    jobs = [Launcher(folder, *TWO, script, folder, "sleep") for folder in folders]
    for folder in folders:
        appears(folder / "sleeps.0")
        appears(folder / "sleeps.1")
    for job in jobs:
        os.kill(job.pid, signal.SIGTERM)
    assert [job.wait().code for job in jobs] == [128 + signal.SIGTERM] * 2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def machines(folder: Path, script: Path, *each: list[object], port: int = 0, act: str = "end") -> list[Launcher]:
    """A launcher for each machine, with its own words, all on this one."""
    place = ("--main_process_ip", "127.0.0.1", "--main_process_port", port or free_port())
    return [Launcher(folder, "--cpu", *place, *words, script, folder, act) for words in each]


def test_machines_train_together(tmp_path: Path, script: Path) -> None:
    words: list[object] = ["--num_machines", 2, "--num_processes", 4, "--machine_rank"]
    second, first = (job.wait() for job in machines(tmp_path, script, [*words, 1], [*words, 0]))
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert sorted(first.out.splitlines()) == ["rank 0 of 4 attempt 0", "rank 1 of 4 attempt 0"]
    assert sorted(second.out.splitlines()) == ["rank 2 of 4 attempt 0", "rank 3 of 4 attempt 0"]


def test_absent_machines_are_named_on_all(tmp_path: Path, script: Path) -> None:
    words: list[object] = ["--num_machines", 4, "--num_processes", 4, "--rdzv_conf", "timeout=3", "--machine_rank"]
    port = free_port()
    got = [job.wait() for job in machines(tmp_path, script, [*words, 0], [*words, 2], port=port)]
    told = f"error: machines 1, 3 of 4 did not come to machine 0 at 127.0.0.1:{port} within 3 seconds"
    assert [one.code for one in got] == [2, 2]
    assert all(told in one.err and one.err.count("\n") == 1 for one in got), got
    assert pids(tmp_path) == []


def test_an_absent_first_machine_is_named(tmp_path: Path, script: Path) -> None:
    words: list[object] = ["--num_machines", 2, "--rdzv_conf", "timeout=1", "--machine_rank", 1, "--num_processes", 2]
    (got,) = (job.wait() for job in machines(tmp_path, script, words))
    assert got.code == 2
    assert "machine 1 did not reach machine 0 at 127.0.0.1" in got.err
    assert "(Connection refused)" in got.err


def test_machines_that_do_not_agree_are_named(tmp_path: Path, script: Path) -> None:
    words: list[object] = ["--num_machines", 2, "--rdzv_conf", "timeout=20"]
    jobs = machines(
        tmp_path,
        script,
        [*words, "--machine_rank", 0, "--num_processes", 2],
        [*words, "--machine_rank", 1, "--num_processes", 4],
    )
    for got in (job.wait() for job in jobs):
        assert got.code == 2
        assert "machines do not agree on num_processes: machine 0 (" in got.err


def test_a_rank_given_twice_is_named(tmp_path: Path, script: Path) -> None:
    words: list[object] = ["--num_machines", 3, "--num_processes", 3, "--rdzv_conf", "timeout=3", "--machine_rank"]
    got = [job.wait() for job in machines(tmp_path, script, [*words, 0], [*words, 1], [*words, 1])]
    twice = [one for one in got if "another machine has already come as machine_rank 1" in one.err]
    assert len(twice) == 1

"""get_logger: one voice for all processes, with the caller's place, before and after an Accelerator exists."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from accelerate_runtime import Accelerator, topology
from accelerate_runtime.logging import get_logger


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = root.level
    yield
    root.setLevel(before)


def test_it_works_before_anything_is_set_up(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("early").warning("hello %s", "you")
    assert [record.getMessage() for record in caplog.records] == ["hello you"]
    assert not topology.is_connected()


def test_other_processes_keep_silent_unless_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    logger = get_logger("other")
    logger.warning("main only")
    logger.warning("all", main_process_only=False)
    assert [record.getMessage() for record in caplog.records] == ["[RANK 1] all"]
    with pytest.raises(RuntimeError, match="create an Accelerator or a PartialState first"):
        logger.warning("in turn", in_order=True)


def test_records_name_the_callers_place(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("places", "DEBUG")
    Accelerator()

    def speak() -> None:
        logger.info("one")
        logger.log(logging.INFO, "two")
        logger.info("three", in_order=True)
        logger.warning_once("four")
        try:
            raise ValueError("five")
        except ValueError:
            logger.exception("it happened")

    speak()
    assert [record.funcName for record in caplog.records] == ["speak"] * 5
    assert {record.filename for record in caplog.records} == {"test_logging.py"}
    assert [r.lineno for r in caplog.records] == [caplog.records[0].lineno + step for step in (0, 1, 2, 3, 7)]


def test_a_wrapper_may_count_its_own_frame(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("wrapped")

    def wrapper() -> None:
        logger.warning("x", stacklevel=3)

    def caller() -> None:
        wrapper()

    caller()
    assert caplog.records[0].funcName == "caller"


def test_a_warning_is_given_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        get_logger("once").warning_once("seen %s", "here")
        get_logger("once").warning_once("seen %s", "there")
    assert [record.getMessage() for record in caplog.records] == ["seen here", "seen there"]


def test_the_level_comes_from_the_argument_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_LOG_LEVEL", "error")
    assert get_logger("levels").getEffectiveLevel() == logging.ERROR
    assert get_logger("levels", "debug").getEffectiveLevel() == logging.DEBUG
    assert logging.getLogger().level == logging.DEBUG
    with pytest.raises(ValueError, match="log_level='loud': allowed are DEBUG, INFO"):
        get_logger("levels", "loud")
    monkeypatch.setenv("ACCELERATE_LOG_LEVEL", "quiet")
    with pytest.raises(ValueError, match="ACCELERATE_LOG_LEVEL='quiet'"):
        get_logger("levels")


def test_what_is_below_the_level_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("formatted for nothing")

    get_logger("quiet", "WARNING").info("%s", Costly())
    assert not caplog.records

"""A process that has lost its way to the store, which process 0 keeps, says what it knows and ends."""

from __future__ import annotations

import threading
import time

import pytest

from accelerate_runtime import waiting


def test_a_store_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    class Store:
        def check(self, keys: list[str]) -> bool:
            answer.wait()
            return False

    monkeypatch.setattr(waiting, "_store", Store)
    monkeypatch.setattr(waiting, "_GRACE", 0.1)
    monkeypatch.setattr(waiting._mine, "over", False)
    begun = time.monotonic()
    assert waiting._records([0, 2]) == {0: None, 2: None}
    assert time.monotonic() - begun < 5
    assert waiting._mine.over, "it would wait for the store again as it ends"
    answer.set()

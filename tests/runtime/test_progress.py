"""Progress bars: shown once, with or without an Accelerator."""

from __future__ import annotations

import sys

import pytest

from accelerate_runtime import Accelerator
from accelerate_runtime.utils import tqdm

pytest.importorskip("tqdm")


@pytest.mark.parametrize("prepared", [True, False])
def test_a_bar_is_shown(prepared: bool, capsys: pytest.CaptureFixture[str]) -> None:
    if prepared:
        Accelerator()
    assert [*tqdm(range(3), desc="epoch")] == [0, 1, 2]
    assert "epoch: 100%" in capsys.readouterr().err


def test_it_is_hidden_on_other_processes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert [*tqdm(range(3))] == [0, 1, 2]
    assert capsys.readouterr().err == ""
    assert [*tqdm(range(3), main_process_only=False)] == [0, 1, 2]
    assert "100%" in capsys.readouterr().err
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert [*tqdm(range(3))] == [0, 1, 2]  # the first of its machine
    assert "100%" in capsys.readouterr().err


def test_it_may_be_disabled_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert [*tqdm(range(3), disable=True)] == [0, 1, 2]
    assert capsys.readouterr().err == ""


def test_mistakes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="pass main_process_only=True by name, and the iterable first"):
        tqdm(True, range(3))
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match=r"accelerate_runtime\.utils\.tqdm needs tqdm.*: pip install tqdm"):
        tqdm(range(3))

"""Environment variables, versions, and what is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from accelerate_runtime import availability, utils
from accelerate_runtime.environment import get_int_from_env
from accelerate_runtime.utils import (
    clear_environment,
    compare_versions,
    is_torch_version,
    parse_choice_from_env,
    parse_flag_from_env,
    patch_environment,
    purge_accelerate_environment,
    str_to_bool,
)


def test_words_for_yes_and_no() -> None:
    assert [str_to_bool(word) for word in ("yes", "TRUE", "on", "1", "t")] == [1] * 5
    assert [str_to_bool(word) for word in ("no", "False", "off", "0", "f")] == [0] * 5
    assert str_to_bool("y", to_bool=True) is True
    with pytest.raises(ValueError, match="'maybe'"):
        str_to_bool("maybe")


def test_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_FLAG", "Yes")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("NUMBER", "7")
    assert parse_flag_from_env("A_FLAG")
    assert not parse_flag_from_env("EMPTY", True)
    assert parse_flag_from_env("MISSING", True)
    assert parse_choice_from_env("A_FLAG") == "Yes"
    assert parse_choice_from_env("MISSING") == "no"
    assert get_int_from_env(["MISSING", "EMPTY", "NUMBER"], 3) == 7
    assert get_int_from_env(["MISSING"], 3) == 3
    with pytest.raises(ValueError, match="A_FLAG='Yes' is not a whole number"):
        get_int_from_env(["A_FLAG"], 0)


def test_a_patched_environment_is_restored_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERE", "old")

    def fails() -> None:
        with patch_environment(there=1, New="x"):
            assert (os.environ["THERE"], os.environ["NEW"]) == ("1", "x")
            del os.environ["NEW"]
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert os.environ["THERE"] == "old"
    assert "NEW" not in os.environ


def test_a_cleared_environment_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERE", "old")
    with clear_environment():
        assert not os.environ
        os.environ["THERE"] = "new"
        os.environ["MORE"] = "new"
    assert os.environ["THERE"] == "old"
    assert "MORE" not in os.environ


def test_what_a_test_sets_is_purged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_OLD", "old")

    @purge_accelerate_environment
    class Tests:
        def test_one(self) -> str:
            os.environ["ACCELERATE_OLD"] = os.environ["ACCELERATE_NEW"] = "new"
            return os.environ["ACCELERATE_OLD"]

        def helper(self) -> None:
            os.environ["OTHER_NEW"] = "kept"

    class Derived(Tests):
        def test_two(self) -> None:
            os.environ["ACCELERATE_NEW"] = "new"

    monkeypatch.setenv("OTHER_NEW", "")
    Derived().helper()
    assert Derived().test_one() == "new"
    Derived().test_two()
    assert os.environ["ACCELERATE_OLD"] == "old"
    assert "ACCELERATE_NEW" not in os.environ
    assert os.environ["OTHER_NEW"] == "kept"


def test_versions_are_compared_as_versions() -> None:
    assert is_torch_version(">=", "2.9")
    assert not is_torch_version("<", "2.9")
    assert not is_torch_version(">", "2.900")
    assert is_torch_version("!=", "1.0")
    assert is_torch_version("==", str(torch.__version__))
    assert compare_versions("pytest", ">", "7.10")
    with pytest.raises(ValueError, match="operation='=<': allowed are >, >=, ==, !=, <=, <"):
        is_torch_version("=<", "2.9")


def test_probes_tell_what_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert availability.is_pytest_available()
    assert not availability.is_lomo_available()
    (tmp_path / "lomo_optim").mkdir()  # a folder of runs, not the package
    monkeypatch.syspath_prepend(tmp_path)
    assert not availability.is_lomo_available()
    assert not availability.is_bnb_available("9999")


def test_probes_read_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "_installed", lambda *names: "4.0.1")
    assert not availability.is_aim_available()
    assert availability.is_torchao_available()
    monkeypatch.setattr(availability, "_installed", lambda *names: "0.5.0")
    assert availability.is_aim_available()
    assert not availability.is_torchao_available()
    assert availability.is_bnb_available("0.4")
    assert not availability.is_rich_available()
    monkeypatch.setenv("ACCELERATE_ENABLE_RICH", "1")
    assert availability.is_rich_available()


def test_every_probe_answers() -> None:
    probes = [name for name in utils.__all__ if name.startswith("is_") and name.endswith("_available")]
    assert len(probes) > 50
    for name in probes:
        assert getattr(utils, name)() in (True, False), name


def test_probes_import_nothing_and_wake_no_device() -> None:
    code = (
        "import sys, torch\n"
        "from accelerate_runtime import utils\n"
        "before = set(sys.modules)\n"
        "for name in utils.__all__:\n"
        "    if name.startswith('is_') and name.endswith('_available'): getattr(utils, name)()\n"
        "heavy = {'transformers', 'datasets', 'wandb', 'deepspeed', 'tensorboard', 'torchao', 'rich', 'pytest'}\n"
        "assert not heavy & (set(sys.modules) - before)\n"
        "assert not torch.cuda.is_initialized()"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert got.returncode == 0, got.stderr

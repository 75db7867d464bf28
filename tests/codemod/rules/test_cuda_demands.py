"""AM262: a script that refuses to run without CUDA runs anywhere."""

from __future__ import annotations

from support.migration import PREPARED, TRAINED, check_migrated


def test_an_assertion_goes() -> None:
    check_migrated(
        """
         import torch
        -assert torch.cuda.is_available(), "CPU training is not allowed."
        """,
        PREPARED,
        TRAINED,
    )


def test_an_exit_goes_with_its_words() -> None:
    check_migrated(
        "import sys",
        PREPARED,
        """
        -if not torch.cuda.is_available():
        -    print("no GPU found")
        -    sys.exit(1)
         sys.setrecursionlimit(2000)
        """,
        TRAINED,
    )


def test_a_raise_goes() -> None:
    check_migrated(
        """
         import torch
        -if not torch.cuda.is_available():
        -    raise RuntimeError("no GPU found")
        """,
        PREPARED,
        TRAINED,
    )


def test_a_demand_for_more_stays() -> None:
    check_migrated(
        PREPARED,
        """
         assert torch.cuda.is_available() and len(data) > 3
        """,
        TRAINED,
    )


def test_a_branch_that_does_more_than_refuse_stays() -> None:
    check_migrated(
        PREPARED,
        """
         if not torch.cuda.is_available():
             torch.set_num_threads(1)
             raise SystemExit
        """,
        TRAINED,
    )

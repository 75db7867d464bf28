"""`accelerate-runtime test`: its checks pass here, and each notices what it is there for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from accelerate_runtime import Accelerator
from accelerate_runtime.launch import sanity


def test_all_checks_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert sanity.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 process(es), NO, device cpu, mixed precision no"
    assert lines[1:-1] == [f"passed: {check.__doc__}" for check in sanity.CHECKS]
    assert lines[-1] == "6 of 6 checks passed: ready to train"


def wrong_ranks(objects: list[Any]) -> list[Any]:
    return [(one[0] + 1, *one[1:]) if isinstance(one, tuple) else one for one in objects]


@pytest.mark.parametrize(
    ("failing", "break_it"),
    [
        ("every process", lambda patch: patch.setattr(sanity, "gather_object", wrong_ranks)),
        ("gather, reduce", lambda patch: patch.setattr(sanity, "reduce", lambda tensor, reduction: tensor + 1)),
        (
            "each sample",
            lambda patch: patch.setattr(Accelerator, "gather_for_metrics", lambda self, batch: batch[:-1]),
        ),
        (
            "training gives",
            lambda patch: patch.setattr(Accelerator, "backward", lambda self, loss: (2 * loss).backward()),
        ),
        ("accumulating", lambda patch: patch.setattr(Accelerator, "backward", lambda self, loss: loss.backward())),
        ("the loss goes down", lambda patch: patch.setattr(torch.optim.SGD, "step", lambda self: None)),
    ],
)
def test_what_is_broken_is_named(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failing: str,
    break_it: Callable[[pytest.MonkeyPatch], None],
) -> None:
    break_it(monkeypatch)
    assert sanity.main() == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAILED")]
    assert any(line.startswith(f"FAILED: {failing}") for line in failed), failed


def test_the_precision_configured_is_the_one_tested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    seen = set()
    forward = nn.Linear.forward

    def noting(self: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        y = forward(self, x)
        seen.add(y.dtype)
        return y

    monkeypatch.setattr(nn.Linear, "forward", noting)
    assert sanity.main() == 0
    assert "mixed precision bf16" in capsys.readouterr().out
    assert seen == {torch.float32, torch.bfloat16}  # weights are compared in full precision

"""Mixed precision: autocast inside, float32 outside, and scaling for fp16."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from accelerate_runtime import Accelerator, AutocastKwargs, GradScalerKwargs
from accelerate_runtime.precision import Precision, convert_outputs_to_fp32, convert_to_fp32


class Probe(nn.Module):
    """Tells the type in which its layer ran."""

    inside: torch.dtype

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
        out = self.layer(x) * scale
        Probe.inside = out.dtype
        return {"out": out, "index": torch.tensor(1)}


@pytest.mark.parametrize(("mode", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16), ("no", torch.float32)])
def test_a_models_forward_runs_lower_and_returns_float32(mode: str, dtype: torch.dtype) -> None:
    model = Accelerator(mixed_precision=mode).prepare(Probe())
    out = model(torch.randn(2, 4), scale=2.0)
    assert Probe.inside is dtype
    assert out["out"].dtype is torch.float32
    assert out["index"].dtype is torch.int64
    assert list(inspect.signature(model.forward).parameters) == ["x", "scale"]


def test_the_context_follows_the_mode() -> None:
    x = torch.randn(2, 2)
    with Accelerator(mixed_precision="bf16").autocast():
        assert (x @ x).dtype is torch.bfloat16
    with Accelerator(mixed_precision="bf16").autocast(AutocastKwargs(enabled=False)):
        assert (x @ x).dtype is torch.float32
    with Accelerator().autocast():
        assert (x @ x).dtype is torch.float32


def test_contexts_nest() -> None:
    accelerator, x = Accelerator(mixed_precision="bf16"), torch.randn(2, 2)
    with accelerator.autocast():
        with accelerator.autocast(AutocastKwargs(enabled=False)):
            assert (x @ x).dtype is torch.float32
            with accelerator.autocast(AutocastKwargs(cache_enabled=False)):
                assert (x @ x).dtype is torch.bfloat16
        assert (x @ x).dtype is torch.bfloat16
    assert (x @ x).dtype is torch.float32


@pytest.mark.parametrize("keep", [False, True])
def test_outputs_may_keep_their_type(keep: bool) -> None:
    @dataclasses.dataclass(frozen=True)
    class Output:
        logits: torch.Tensor
        hidden: tuple[torch.Tensor, ...]
        kind: str = "text"

    Pair = namedtuple("Pair", "scores index")

    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.layer(x)
            return Output(y, (y, y.double())), Pair([y], torch.tensor(1)), OrderedDict(a=y)

    accelerator = Accelerator(mixed_precision="bf16", kwargs_handlers=[AutocastKwargs(keep_output_dtype=keep)])
    output, pair, ordered = accelerator.prepare(Nested())(torch.randn(2, 2))
    expected = torch.bfloat16 if keep else torch.float32
    assert (type(output), type(pair), type(ordered)) == (Output, Pair, OrderedDict)
    assert [output.logits.dtype, output.hidden[0].dtype, pair.scores[0].dtype, ordered["a"].dtype] == [expected] * 4
    assert (output.hidden[1].dtype, output.kind, pair.index.dtype) == (torch.float64, "text", torch.int64)
    accelerator.backward(output.logits.sum())
    assert AutocastKwargs(cache_enabled=True, keep_output_dtype=keep).to_kwargs() == {"cache_enabled": True}


def test_a_function_may_give_float32_too() -> None:
    @convert_outputs_to_fp32
    def halve(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"half": x.half()}

    assert halve(torch.ones(1))["half"].dtype is torch.float32
    assert halve.__name__ == "halve"


def test_whether_precision_is_mixed() -> None:
    assert [Accelerator(mixed_precision=mode).native_amp for mode in ("no", "bf16", "fp16")] == [False, True, True]


def test_unwrapping_may_take_autocast_off() -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    model = accelerator.prepare(Probe())
    assert accelerator.unwrap_model(model) is model
    accelerator.unwrap_model(model, keep_fp32_wrapper=False)(torch.randn(2, 4))
    assert Probe.inside is torch.float32
    assert "forward" not in vars(model)


def test_copies_and_files_of_a_prepared_model(tmp_path: Path) -> None:
    model = Accelerator(mixed_precision="bf16").prepare(Probe())
    twin = copy.deepcopy(model)
    nn.init.zeros_(model.layer.weight)
    twin(torch.randn(2, 4))
    assert Probe.inside is torch.bfloat16
    assert twin.forward.model is twin
    torch.save(model, tmp_path / "model.pt")
    assert b"accelerate_runtime" not in (tmp_path / "model.pt").read_bytes()
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    loaded(torch.randn(2, 4))
    assert Probe.inside is torch.float32


def test_fp16_scales_and_skips_what_overflows() -> None:
    accelerator = Accelerator(mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=1024.0)])
    model, optimizer = accelerator.prepare(model := nn.Linear(2, 1), torch.optim.SGD(model.parameters(), lr=0.1))
    scheduler = accelerator.prepare(torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1))
    accelerator.backward(model(torch.ones(1, 2)).sum())
    assert model.weight.grad.tolist() == [[1024, 1024]]
    accelerator.clip_grad_value_(model.parameters(), 0.5)
    accelerator.clip_grad_norm_(model.parameters(), 100.0)
    assert model.weight.grad.tolist() == [[0.5, 0.5]]
    optimizer.step()
    scheduler.step()
    assert not accelerator.optimizer_step_was_skipped
    assert scheduler.get_last_lr() == pytest.approx([0.01])
    model.weight.grad.fill_(float("inf"))
    before = model.weight.clone()
    optimizer.step()
    scheduler.step()
    assert accelerator.optimizer_step_was_skipped
    assert optimizer.step_was_skipped
    assert torch.equal(model.weight, before)
    assert scheduler.get_last_lr() == pytest.approx([0.01])
    assert accelerator.scaler is not None
    assert accelerator.scaler.get_scale() == 512.0


def test_two_optimizers_clipped_before_either_steps() -> None:
    accelerator = Accelerator(mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=64.0)])
    models = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    for model in models:
        nn.init.ones_(model.weight)
    optimizers = accelerator.prepare(*(torch.optim.SGD(model.parameters(), lr=1.0) for model in models))
    for model in models:
        accelerator.backward(model(torch.ones(1, 1)).sum())
    for model in models:
        accelerator.clip_grad_norm_(model.parameters(), 10.0)
    for optimizer in optimizers:
        optimizer.step()
    assert [model.weight.item() for model in models] == [0.0, 0.0]  # each gradient of 1 was unscaled once


def test_fp16_needs_a_device_that_can_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accelerate_runtime.devices.can_scale_gradients", lambda device: False)
    with pytest.raises(ValueError, match="cannot scale gradients on cpu; use 'bf16'"):
        Precision("fp16", torch.device("cpu"))


def test_only_low_floats_are_widened() -> None:
    data = {"a": [torch.ones(1, dtype=torch.bfloat16)], "b": torch.ones(1, dtype=torch.float64), "c": "text"}
    wide = convert_to_fp32(data)
    assert (wide["a"][0].dtype, wide["b"].dtype, wide["c"]) == (torch.float32, torch.float64, "text")

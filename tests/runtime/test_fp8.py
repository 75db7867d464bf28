"""fp8: which engine, which layers, and that it trains. torchao computes as on a GPU, emulated; others need one."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from torch import nn

from accelerate_runtime import Accelerator
from accelerate_runtime.utils import (
    AORecipeKwargs,
    FP8BackendType,
    MSAMPRecipeKwargs,
    TERecipeKwargs,
    has_ao_layers,
)

needs_torchao = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="pip install torchao")


class Net(nn.Module):
    """Four linear layers, of which the second has a size that 8-bit products don't take."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 32))
        self.middle = nn.Linear(32, 32)
        self.head = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.middle(torch.relu(self.body(x)))
        out: torch.Tensor = self.head(torch.relu(self.seen))
        return out


def converted(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if type(module).__name__ == "Float8Linear"]


@needs_torchao
def test_the_first_and_last_layer_and_sizes_that_do_not_fit_stay() -> None:
    accelerator = Accelerator(mixed_precision="fp8")
    assert (accelerator.fp8_backend, accelerator.fp8_enabled, accelerator.native_amp) == (FP8BackendType.AO, True, True)
    net = Net()
    assert not has_ao_layers(net)
    parameters, keys = list(net.parameters()), list(net.state_dict())
    model = accelerator.prepare(net)
    assert model is net
    assert converted(model) == ["middle"]
    assert has_ao_layers(model)
    assert all(now is before for now, before in zip(model.parameters(), parameters, strict=True))
    assert list(model.state_dict()) == keys
    assert accelerator.scaler is None


@needs_torchao
def test_it_trains_with_an_optimizer_prepared_before_or_after() -> None:
    def train(mode: str, together: bool) -> list[float]:
        accelerator, net = Accelerator(mixed_precision=mode), Net()
        optimizer: Any = torch.optim.Adam(net.parameters(), lr=0.01)
        if together:
            net, optimizer = accelerator.prepare(net, optimizer)
        else:
            optimizer = accelerator.prepare(optimizer)
            net = accelerator.prepare(net)
        x = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
        losses = []
        for _ in range(20):
            out = net(x)
            assert out.dtype is torch.float32
            assert net.seen.dtype is (torch.bfloat16 if mode != "no" else torch.float32)
            loss = (out - x[:, :1]).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    fp8 = train("fp8", together=True)
    assert fp8 == train("fp8", together=False)
    assert fp8[-1] < 0.8 * fp8[0]
    assert fp8 != train("bf16", together=True)
    assert fp8 == pytest.approx(train("no", together=True), rel=0.3)


@needs_torchao
def test_a_filter_and_a_configuration_of_ones_own() -> None:
    from torchao.float8 import Float8LinearConfig

    config = Float8LinearConfig(emulate=True, round_scales_to_power_of_2=True)
    recipe = AORecipeKwargs(config=config, module_filter_func=lambda module, name: name == "body.0")
    model = Accelerator(mixed_precision="fp8", kwargs_handlers=[recipe]).prepare(Net())
    assert converted(model) == ["body.0"]
    assert model.body[0].config.round_scales_to_power_of_2
    everything = AORecipeKwargs(config=config, module_filter_func=lambda module, name: True)
    lone = Accelerator(mixed_precision="fp8", kwargs_handlers=[everything]).prepare(nn.Linear(16, 16))
    assert has_ao_layers(lone)
    with pytest.raises(ValueError, match="part of `config`"):
        AORecipeKwargs(config=config, pad_inner_dim=True)


@needs_torchao
def test_the_environment_configures_torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp8")
    monkeypatch.setenv("ACCELERATE_FP8_BACKEND", "ao")
    monkeypatch.setenv("ACCELERATE_FP8_PAD_INNER_DIM", "false")
    layer = Accelerator().prepare(Net()).middle
    assert (layer.config.pad_inner_dim, layer.config.emulate) == (False, True)
    assert AORecipeKwargs(pad_inner_dim=True).pad_inner_dim is True


def test_a_missing_torchao_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torchao.float8", None)
    with pytest.raises(ImportError, match="pip install torchao"):
        Accelerator(mixed_precision="fp8", kwargs_handlers=[AORecipeKwargs()])


def test_without_any_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accelerate_runtime.precision.fp8.is_installed", lambda package: False)
    with pytest.raises(ImportError, match="needs an engine, and none is installed: pip install torchao"):
        Accelerator(mixed_precision="fp8")


def test_transformer_engine_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="needs an NVIDIA GPU, and this process trains on cpu"):
        Accelerator(mixed_precision="fp8", kwargs_handlers=[TERecipeKwargs()])
    monkeypatch.setenv("ACCELERATE_FP8_BACKEND", "TE")
    with pytest.raises(ValueError, match="needs an NVIDIA GPU"):
        Accelerator(mixed_precision="fp8")


def test_the_environment_configures_transformer_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = TERecipeKwargs()
    assert (recipe.fp8_format, recipe.amax_compute_algo, recipe.amax_history_len) == ("HYBRID", "most_recent", 1024)
    assert recipe.override_linear_precision == (False, False, False)
    for name, value in {"FORMAT": "e4m3", "MARGIN": "2", "OVERRIDE_DGRAD": "true", "AMAX_COMPUTE_ALGO": "MAX"}.items():
        monkeypatch.setenv(f"ACCELERATE_FP8_{name}", value)
    recipe = TERecipeKwargs()
    assert (recipe.fp8_format, recipe.margin, recipe.amax_compute_algo) == ("E4M3", 2, "max")
    assert recipe.override_linear_precision == (False, True, False)
    monkeypatch.setenv("ACCELERATE_FP8_MARGIN", "two")
    with pytest.raises(ValueError, match="ACCELERATE_FP8_MARGIN='two' is not a whole number"):
        TERecipeKwargs()
    with pytest.raises(ValueError, match=r"fp8_format='E3M4'\): allowed are 'HYBRID', 'E4M3', 'E5M2'"):
        TERecipeKwargs(margin=0, fp8_format="E3M4")


def test_ms_amp_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotImplementedError, match="MS-AMP is maintained no longer"):
        MSAMPRecipeKwargs()
    monkeypatch.setenv("ACCELERATE_FP8_BACKEND", "MSAMP")
    with pytest.raises(NotImplementedError, match="AORecipeKwargs"):
        Accelerator(mixed_precision="fp8")


def test_recipes_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="AORecipeKwargs is a recipe of fp8, but mixed_precision is 'bf16'"):
        Accelerator(mixed_precision="bf16", kwargs_handlers=[AORecipeKwargs()])
    with pytest.raises(ValueError, match="two recipes of fp8"):
        Accelerator(mixed_precision="fp8", kwargs_handlers=[AORecipeKwargs(), TERecipeKwargs()])
    monkeypatch.setenv("ACCELERATE_FP8_BACKEND", "XYZ")
    with pytest.raises(ValueError, match="ACCELERATE_FP8_BACKEND='XYZ'"):
        Accelerator(mixed_precision="fp8")
    assert Accelerator().fp8_backend == "NO"

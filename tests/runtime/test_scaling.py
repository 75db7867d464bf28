"""fp16: prepared optimizers share one loss scale, whenever each of them steps.

Two references: a loop over torch.amp written by hand; and, because scales are powers of two, the same loop without any
scaling, which gives the very same numbers where nothing is computed in float16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from accelerate_runtime import Accelerator, AutocastKwargs, GradientAccumulationPlugin, GradScalerKwargs

STEPS = 12
SCALING = {"init_scale": 2.0**17, "growth_interval": 3}  # overflows at first, grows back later


def fp16(*, exact: bool = False, scaling: dict[str, Any] = SCALING, steps: int = 1) -> Accelerator:
    """An Accelerator that scales; with `exact`, one that computes in float32 all the same."""
    handlers = [GradScalerKwargs(**scaling), AutocastKwargs(enabled=not exact)]
    plugin = GradientAccumulationPlugin(num_steps=steps)
    return Accelerator(mixed_precision="fp16", kwargs_handlers=handlers, gradient_accumulation_plugin=plugin)


def nets(count: int) -> list[nn.Linear]:
    torch.manual_seed(0)
    return [nn.Linear(4, 4) for _ in range(count)]


def sgd(net: nn.Module, **options: Any) -> Any:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, **options)


def batch(number: int) -> torch.Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(number))


def weights(models: list[nn.Linear]) -> list[list[float]]:
    return [parameter.tolist() for model in models for parameter in model.parameters()]


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_one_optimizer_is_bit_for_bit_torch_amp(clip: bool, fused: bool) -> None:
    (net,) = nets(1)
    # (torch's fused SGD leaves momenta uninitialised where the very first step is skipped)
    make = lambda net: torch.optim.Adam(net.parameters(), fused=True) if fused else sgd(net)  # noqa: E731
    optimizer, scaler = make(net), torch.amp.GradScaler("cpu", **SCALING)
    scales, skipped = [], []
    for number in range(STEPS):
        with torch.autocast("cpu", torch.float16):
            out = net(batch(number))
        scaler.scale(out.float().pow(2).mean() * 1000).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
        skipped.append(scaler.get_scale() < before)
    assert set(skipped) == {True, False}
    assert max(scales[-3:]) > min(scales)

    accelerator, (net_2,) = fp16(), nets(1)
    model, prepared = accelerator.prepare(net_2, make(net_2))
    for number in range(STEPS):
        accelerator.backward(model(batch(number)).pow(2).mean() * 1000)
        if clip:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        prepared.step()
        prepared.zero_grad()
        assert accelerator.scaler is not None
        assert accelerator.scaler.get_scale() == scales[number]
        assert prepared.step_was_skipped == accelerator.optimizer_step_was_skipped == skipped[number]
    assert weights([net_2]) == weights([net])
    assert accelerator.scaler.state_dict() == scaler.state_dict()


ORDERS = ["step step", "clip step clip step", "clip clip step step", "unscale step step"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("overflowing", [None, 0, 1])
def test_two_optimizers_are_bit_for_bit_torch_amp(order: str, overflowing: int | None) -> None:
    """As torch's documentation has it: one update, once both have stepped, whatever stands in between."""

    def poison(number: int, models: list[nn.Linear]) -> None:
        if overflowing is not None and number in (4, 5, 9):
            models[overflowing].weight.grad[0, 0] = float("inf")

    def by_hand() -> tuple[list[list[float]], list[float], list[list[bool]]]:
        models, scales, skipped = nets(2), [], []
        optimizers = [sgd(model) for model in models]
        scaler = torch.amp.GradScaler("cpu", **SCALING)
        for number in range(STEPS):
            with torch.autocast("cpu", torch.float16):
                outs = [model(batch(number)) for model in models]
            for out in outs:
                scaler.scale(out.float().pow(2).mean()).backward()
            poison(number, models)
            if order == "clip clip step step":
                for model, optimizer in zip(models, optimizers, strict=True):
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            before = [model.weight.clone() for model in models]
            for model, optimizer in zip(models, optimizers, strict=True):
                if order == "clip step clip step":
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
            scaler.update()
            for optimizer in optimizers:
                optimizer.zero_grad()
            scales.append(scaler.get_scale())
            skipped.append([torch.equal(model.weight, old) for model, old in zip(models, before, strict=True)])
        return weights(models), scales, skipped

    def prepared() -> tuple[list[list[float]], list[float], list[list[bool]]]:
        accelerator, plain, scales, skipped = fp16(), nets(2), [], []
        optimizers = list(accelerator.prepare(*map(sgd, plain)))
        models = accelerator.prepare(*plain)
        for number in range(STEPS):
            for out in [model(batch(number)) for model in models]:
                accelerator.backward(out.pow(2).mean())
            poison(number, plain)
            if order == "clip clip step step":
                for model in models:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
            if order == "unscale step step":
                accelerator.unscale_gradients()
            for model, optimizer in zip(models, optimizers, strict=True):
                if order == "clip step clip step":
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            for optimizer in optimizers:
                optimizer.zero_grad()
            assert accelerator.scaler is not None
            scales.append(accelerator.scaler.get_scale())
            skipped.append([one.step_was_skipped for one in optimizers])
        return weights(plain), scales, skipped

    assert prepared() == by_hand()


GROWING = {"init_scale": 2.0, "growth_interval": 1}  # the scale changes after each step


def train(accelerator: Accelerator | None, loop: Callable[..., None], count: int = 2) -> list[list[float]]:
    """The weights after `loop`, with prepared objects or (None) with plain ones."""
    models: list[Any] = nets(count)
    optimizers = [sgd(model) for model in models]
    if accelerator is None:
        loop(models, optimizers, lambda loss, **kwargs: loss.backward(**kwargs), nn.utils.clip_grad_norm_)
    else:
        prepared = [accelerator.prepare(one) for one in optimizers]
        loop(
            [accelerator.prepare(model) for model in models],
            prepared,
            accelerator.backward,
            accelerator.clip_grad_norm_,
        )
        assert accelerator.scaler is not None
        assert accelerator.scaler.get_scale() > 16
    return weights(models)


def assert_same_as_without_scaling(loop: Callable[..., None], count: int = 2) -> None:
    assert train(fp16(exact=True, scaling=GROWING), loop, count) == train(None, loop, count)


@pytest.mark.parametrize("clip", ["nothing", "own", "everything"])
def test_an_optimizer_that_steps_less_often_keeps_its_gradients_right(clip: str) -> None:
    def loop(models: Any, optimizers: Any, backward: Any, clip_: Any) -> None:
        for number in range(STEPS):
            for model in models:
                backward(model(batch(number)).pow(2).mean())
            acting = range(2) if number % 3 == 2 else range(1)
            for index in range(2) if clip == "everything" else acting if clip == "own" else ():
                clip_(models[index].parameters(), 0.5)
            for index in acting:
                optimizers[index].step()
                optimizers[index].zero_grad()

    assert_same_as_without_scaling(loop)


@pytest.mark.parametrize("clears", ["optimizer at the top", "optimizer at the end", "model at the top"])
def test_turns_as_in_a_gan(clears: str) -> None:
    def loop(models: Any, optimizers: Any, backward: Any, clip_: Any) -> None:
        generator, critic = models
        for number in range(STEPS):
            for index in range(2):
                if clears.endswith("top"):
                    (optimizers if clears.startswith("optimizer") else models)[index].zero_grad()
                x = batch(number)
                backward(critic(generator(x)).mean() if index == 0 else critic(x).pow(2).mean())
                clip_(models[index].parameters(), 1.0)
                optimizers[index].step()
                if clears.endswith("end"):
                    optimizers[index].zero_grad()

    assert_same_as_without_scaling(loop)


def test_several_losses_before_a_step() -> None:
    def loop(models: Any, optimizers: Any, backward: Any, clip_: Any) -> None:
        for number in range(STEPS):
            hidden = models[0](batch(number))
            backward(models[1](hidden).pow(2).mean(), retain_graph=True)
            backward(models[2](hidden).mean())
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    assert_same_as_without_scaling(loop, count=3)


def test_a_batch_may_be_left_after_clipping() -> None:
    """`if bad: optimizer.zero_grad(); continue`: the next batch's gradients are unscaled as ever."""

    def loop(models: Any, optimizers: Any, backward: Any, clip_: Any) -> None:
        for number in range(STEPS):
            backward(models[0](batch(number)).pow(2).mean())
            clip_(models[0].parameters(), 0.5)
            if number % 3 != 1:
                optimizers[0].step()
            optimizers[0].zero_grad(set_to_none=number % 2 == 0)

    assert_same_as_without_scaling(loop, count=1)


def test_an_optimizer_without_gradients_steps_as_it_would_without_scaling() -> None:
    accelerator, models = fp16(), nets(2)
    optimizers = accelerator.prepare(*map(sgd, models))
    accelerator.backward(models[0](batch(0)).mean())
    for optimizer in optimizers:
        optimizer.step()
    assert not accelerator.optimizer_step_was_skipped


def test_one_optimizer_overflows_and_only_its_scheduler_waits() -> None:
    accelerator, models = fp16(exact=True), nets(2)
    optimizers = [accelerator.prepare(sgd(model)) for model in models]
    schedulers = [
        accelerator.prepare(torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1, gamma=0.5))
        for optimizer in optimizers
    ]
    before = weights(models)
    for model in models:
        accelerator.backward(model(batch(0)).mean())
    models[0].weight.grad[0, 0] = float("nan")  # type: ignore[index]
    for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
        optimizer.step()
        scheduler.step()
    assert [optimizer.step_was_skipped for optimizer in optimizers] == [True, False]
    assert [scheduler.get_last_lr() for scheduler in schedulers] == [[0.05], [0.025]]
    assert [now == old for now, old in zip(weights(models), before, strict=True)] == [True, True, False, False]
    assert accelerator.scaler is not None
    assert accelerator.scaler.get_scale() == 2.0**16  # backed off, once both had stepped


@pytest.mark.parametrize("clip", [False, True])
def test_a_window_is_unscaled_and_checked_at_its_end(clip: bool) -> None:
    def loop(models: Any, optimizers: Any, backward: Any, clip_: Any) -> None:
        for number in range(STEPS):
            backward(models[0](batch(number)).pow(2).mean() / 4)
            if number % 4 == 3:
                if clip:
                    clip_(models[0].parameters(), 0.5)
                optimizers[0].step()
                optimizers[0].zero_grad()

    accelerator, (net,) = fp16(exact=True, scaling=GROWING, steps=4), nets(1)
    optimizer = accelerator.prepare(sgd(net))
    for number in range(STEPS):
        with accelerator.accumulate(net):
            optimizer.zero_grad()
            accelerator.backward(net(batch(number)).pow(2).mean())
            accelerator.unscale_gradients()
            if clip:
                gradients = [net.weight.grad, net.bias.grad]
                norm = accelerator.clip_grad_norm_(net.parameters(), 0.5)
                if not accelerator.sync_gradients:
                    scale = accelerator.scaler.get_scale()  # type: ignore[union-attr]
                    assert norm == nn.utils.get_total_norm(gradients) / scale  # type: ignore[arg-type]
            optimizer.step()
    assert weights([net]) == train(None, loop, 1)


def test_an_overflow_inside_a_window_costs_the_whole_window() -> None:
    accelerator, (net,) = fp16(exact=True, steps=3), nets(1)
    optimizer = accelerator.prepare(sgd(net))
    scheduler = accelerator.prepare(torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 1, gamma=0.5))
    before, skipped, rates = weights([net]), [], []
    for number in range(6):
        with accelerator.accumulate(net):
            accelerator.backward(net(batch(number)).mean() * (float("inf") if number == 1 else 1))
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        skipped.append(optimizer.step_was_skipped)
        rates += scheduler.get_last_lr()
        assert (weights([net]) == before) == (number < 5)
    assert skipped == [False, False, True, True, True, False]
    assert rates == [0.05] * 5 + [0.025]


def test_a_closure_is_refused() -> None:
    accelerator, (net,) = fp16(), nets(1)
    optimizer = accelerator.prepare(torch.optim.LBFGS(net.parameters()))
    accelerator.backward(net(batch(0)).mean())
    with pytest.raises(ValueError, match=r"step\(closure\) cannot be used with mixed_precision='fp16'"):
        optimizer.step(lambda: 0.0)


def test_scaling_may_be_switched_off() -> None:
    accelerator, (net,) = fp16(exact=True, scaling={"enabled": False}), nets(1)
    optimizer = accelerator.prepare(sgd(net))
    accelerator.backward(net(batch(0)).sum())
    accelerator.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step(lambda: 0.0)
    assert not optimizer.step_was_skipped


def test_the_scalers_state_includes_the_update_that_waits() -> None:
    accelerator, models = fp16(exact=True), nets(2)
    optimizers = accelerator.prepare(*map(sgd, models))
    for model in models:
        accelerator.backward(model(batch(0)).mean())
    models[0].weight.grad[0, 0] = float("inf")  # type: ignore[index]
    optimizers[0].step()  # the other one has still to step
    assert accelerator.scaler is not None
    assert accelerator.scaler.get_scale() == 2.0**17
    assert accelerator.scaler.state_dict()["scale"] == 2.0**16
    gradient = torch.full((4, 4), 1 / 32) * batch(0).sum(0)
    optimizers[1].step()
    assert torch.allclose(models[1].weight.grad, gradient, atol=1e-6)  # type: ignore[arg-type]

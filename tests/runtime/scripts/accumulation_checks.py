"""Checks of accumulation on two processes: each step has the gradients of its global batch, whatever stands where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from both import everyone, me
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from accelerate_runtime import Accelerator, AutocastKwargs, GradientAccumulationPlugin, GradScalerKwargs

LENGTHS = [5, 1, 9, 2, 2, 7, 3, 4, 1, 6]  # of texts: 5 a process, in windows of 3 and 2


class Texts(Dataset[torch.Tensor]):
    """Each item is a text: rows of four numbers, its tokens."""

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(LENGTHS[index], 4, generator=torch.Generator().manual_seed(index))


def nets(count: int = 1) -> list[nn.Sequential]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)) for _ in range(count)]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def samples() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(48, 4, generator=generator), torch.randn(48, 1, generator=generator))


def global_batches(size: int) -> Iterator[Any]:
    inputs, targets = samples().tensors
    for start in range(0, len(inputs), size):
        yield inputs[start : start + size], targets[start : start + size]


def assert_close(models: list[Any], expected: list[Any]) -> None:
    for ours, theirs in zip(models, expected, strict=True):
        for mine, wanted in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(mine, wanted, rtol=1e-6, atol=1e-6), (mine, wanted)
    seen = everyone([parameter.tolist() for model in models for parameter in model.parameters()])
    assert seen[0] == seen[1]


def alone(size: int) -> list[nn.Sequential]:
    """Two models, each trained on whole batches of `size` in one process."""
    models = nets(2)
    optimizers = [sgd(model) for model in models]
    for x, y in global_batches(size):
        for model, optimizer in zip(models, optimizers, strict=True):
            (model(x) - y).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return models


def check_windows_of_several_models_are_global_batches() -> None:
    """accumulate() for one, both or all models; zero_grad at the top or the end; exchanged once, or each time."""
    expected = alone(24)  # 2 processes x 3 micro-batches x 4 samples
    for named in ("none", "first", "both"):
        for top in (True, False):
            for each in (True, False):
                plugin = GradientAccumulationPlugin(num_steps=3, sync_each_batch=each)
                accelerator, plain = Accelerator(gradient_accumulation_plugin=plugin), nets(2)
                optimizers = [accelerator.prepare(sgd(model)) for model in plain]
                models = accelerator.prepare(*plain)
                named_models = {"none": (), "first": models[:1], "both": models}[named]
                for x, y in accelerator.prepare(DataLoader(samples(), batch_size=4)):
                    with accelerator.accumulate(*named_models):
                        for model, optimizer in zip(models, optimizers, strict=True):
                            if top:
                                optimizer.zero_grad()
                            accelerator.backward((model(x) - y).pow(2).mean())
                            optimizer.step()
                            if not top:
                                optimizer.zero_grad()
                assert_close(plain, expected)


def check_no_sync_by_hand() -> None:
    expected, accelerator, plain = alone(24)[:1], Accelerator(), nets(1)
    model, optimizer = accelerator.prepare(plain[0], sgd(plain[0]))
    for number, (x, y) in enumerate(accelerator.prepare(DataLoader(samples(), batch_size=4)), 1):
        ends = number % 3 == 0
        with nullcontext() if ends else accelerator.no_sync(model):
            accelerator.backward((model(x) - y).pow(2).mean() / 3)
        if ends:
            optimizer.step()
            optimizer.zero_grad()
    assert_close(plain, expected)


def check_a_window_may_run_over_the_loaders_end() -> None:
    """With sync_with_dataloader it ends there, its losses divided by all of num_steps; without, it goes on."""
    for sync in (True, False):
        plugin = GradientAccumulationPlugin(num_steps=4, sync_with_dataloader=sync)
        accelerator = Accelerator(gradient_accumulation_plugin=plugin)
        plain, expected = nets(1), nets(1)
        model, optimizer = accelerator.prepare(plain[0], sgd(plain[0]))
        loader = accelerator.prepare(DataLoader(samples(), batch_size=4))  # 6 micro-batches a process
        for _ in range(2):
            for x, y in loader:
                with accelerator.accumulate(model):
                    optimizer.zero_grad()
                    accelerator.backward((model(x) - y).pow(2).mean())
                    optimizer.step()
        by_hand = sgd(expected[0])
        micro = [batch for _ in range(2) for batch in global_batches(8)]
        for number, (x, y) in enumerate(micro, 1):
            ((expected[0](x) - y).pow(2).mean() / 4).backward()
            if number % 4 == 0 if not sync else number in (4, 6, 10, 12):
                by_hand.step()
                by_hand.zero_grad()
        assert_close(plain, expected)


def check_items_are_counted_over_windows_and_processes() -> None:
    texts = [Texts()[index] for index in range(len(LENGTHS))]
    counts: list[Any] = [int, lambda n: torch.tensor(n)]
    for clip in (None, 0.5):
        (expected,) = nets(1)
        by_hand = sgd(expected)
        for window in (texts[:6], texts[6:]):
            tokens = torch.cat(window)
            ((expected(tokens) - tokens.sum(1, keepdim=True)).pow(2).sum() / len(tokens)).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(expected.parameters(), clip)
            by_hand.step()
            by_hand.zero_grad()
        for mode, top, each, count in (
            ("no", True, False, counts[0]),
            ("no", False, True, counts[1]),
            ("fp16", True, False, counts[1]),
        ):
            accelerator, (plain,) = (
                Accelerator(
                    mixed_precision=mode,
                    gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=3, sync_each_batch=each),
                    kwargs_handlers=[AutocastKwargs(enabled=False), GradScalerKwargs(init_scale=64.0)],
                ),
                nets(1),
            )
            model, optimizer = accelerator.prepare(plain, sgd(plain))
            for tokens in accelerator.prepare(DataLoader(Texts(), batch_size=None)):
                with accelerator.accumulate(model):
                    if top:
                        optimizer.zero_grad()
                    loss = (model(tokens) - tokens.sum(1, keepdim=True)).pow(2).sum()
                    accelerator.backward(loss, num_items=count(len(tokens)))
                    if clip is not None:
                        accelerator.clip_grad_norm_(model.parameters(), clip)
                    optimizer.step()
                    if not top:
                        optimizer.zero_grad()
            assert_close([plain], [expected])


def check_one_process_without_items() -> None:
    accelerator, (plain,), (expected,) = Accelerator(), nets(1), nets(1)
    model, optimizer = accelerator.prepare(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    tokens = Texts()[0] if me else torch.zeros(0, 4)
    accelerator.backward(model(tokens).sum(), num_items=len(tokens))
    optimizer.step()
    expected(Texts()[0]).mean().backward()
    torch.optim.SGD(expected.parameters(), lr=0.1).step()
    assert_close([plain], [expected])


def check_schedulers_follow_windows() -> None:
    accelerator, (plain,) = Accelerator(gradient_accumulation_steps=3), nets(1)
    optimizer = sgd(plain)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    model, optimizer, scheduler = accelerator.prepare(plain, optimizer, scheduler)
    steps = []
    for x, y in accelerator.prepare(DataLoader(samples(), batch_size=4)):
        with accelerator.accumulate(model):
            accelerator.backward((model(x) - y).pow(2).mean())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        steps.append(round(0.1 / optimizer.param_groups[0]["lr"]) - 1)
    assert steps == [0, 0, 2, 2, 2, 4]  # two processes: two steps of the schedule for one of the optimizer

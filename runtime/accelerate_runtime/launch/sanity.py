"""A short training that checks, where it is launched, what trainings rely on: `accelerate-runtime test` runs it.

Each check compares on every process and says what was wrong; all processes go through all collective operations, so a
wrong number on one of them does not leave the others waiting.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sized
from typing import Any, cast

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator
from accelerate_runtime.utils import broadcast, gather, gather_object, pad_across_processes, reduce

STEPS, BATCH = 6, 4  # of each process


def check_processes(accelerator: Accelerator) -> list[str]:
    """every process has its own rank, and device"""
    places = gather_object([(accelerator.process_index, accelerator.local_process_index, str(accelerator.device))])
    ranks = [place[0] for place in places]
    wrong = [] if ranks == list(range(accelerator.num_processes)) else [f"the ranks are {ranks}"]
    if len({rank for _, rank, _ in places}) == len(places) and accelerator.device.type != "cpu":
        devices = [place[2] for place in places]
        if len(set(devices)) < len(devices):
            wrong.append(f"processes share a device: {devices}")
    return wrong


def check_collectives(accelerator: Accelerator) -> list[str]:
    """gather, reduce, broadcast and padding"""
    count, rank, device = accelerator.num_processes, accelerator.process_index, accelerator.device
    mine = torch.full((2,), float(rank), device=device)
    everyone = torch.arange(count, dtype=torch.float32).repeat_interleave(2)
    ragged = torch.full((rank + 1,), 1.0, device=device)
    return [
        *_compare("gather", gather(mine), everyone),
        *_compare("reduce", reduce(mine, "sum"), torch.full((2,), float(sum(range(count))))),
        *_compare("broadcast", broadcast(mine), torch.zeros(2)),
        *_compare("padding", pad_across_processes(ragged), (torch.arange(count) <= rank).float()),
    ]


def check_loaders(accelerator: Accelerator) -> list[str]:
    """each sample is seen once, and gathered once"""
    size = BATCH * accelerator.num_processes * 2 + 3
    wrong = []
    for shuffle in (False, True):
        plain = DataLoader(TensorDataset(torch.arange(size)), batch_size=BATCH, shuffle=shuffle)
        loader = accelerator.prepare(plain)
        seen = torch.cat([accelerator.gather_for_metrics(batch[0]) for batch in loader]).cpu()
        if sorted(seen.tolist()) != list(range(size)):
            wrong.append(f"with shuffle={shuffle}, {size} samples were gathered as {sorted(seen.tolist())}")
        batches = gather_object([len(cast(Sized, loader))])
        if len(set(batches)) > 1:
            wrong.append(f"with shuffle={shuffle}, processes get different numbers of batches: {batches}")
    return wrong


def check_training(accelerator: Accelerator) -> list[str]:
    """training gives what one process would give"""
    return _compare("the weights", _train(accelerator, 1), _train_alone(accelerator), _tolerance(accelerator))


def check_accumulation(accelerator: Accelerator) -> list[str]:
    """accumulating two micro-batches gives what one batch would give"""
    return _compare("the weights", _train(accelerator, 2), _train_alone(accelerator), _tolerance(accelerator))


def check_precision(accelerator: Accelerator) -> list[str]:
    """the loss goes down in the precision configured"""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    x = torch.randn(16, 16, device=accelerator.device)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05))
    losses = []
    for _ in range(20):
        loss = nn.functional.mse_loss(model(x), x)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return [] if losses[-1] < losses[0] else [f"the loss went from {losses[0]:.4f} to {losses[-1]:.4f}"]


def _samples(accelerator: Accelerator) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    size = STEPS * BATCH * accelerator.num_processes
    return TensorDataset(torch.randn(size, 8, generator=generator), torch.randn(size, 1, generator=generator))


def _model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def _train(accelerator: Accelerator, micro_batches: int) -> torch.Tensor:
    """The weights after an epoch of all processes, without autocast."""
    loader = DataLoader(_samples(accelerator), batch_size=BATCH // micro_batches)
    model, optimizer, loader = accelerator.prepare(*_model_and_optimizer(), loader)
    plain = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    accelerator.gradient_accumulation_steps = micro_batches
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
    accelerator.gradient_accumulation_steps = 1
    return _weights(plain)


def _train_alone(accelerator: Accelerator) -> torch.Tensor:
    """The weights after the same epoch in raw torch, on this process alone."""
    model, optimizer = _model_and_optimizer()
    model.to(accelerator.device)
    for x, y in DataLoader(_samples(accelerator), batch_size=BATCH * accelerator.num_processes):
        loss = nn.functional.mse_loss(model(x.to(accelerator.device)), y.to(accelerator.device))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return _weights(model)


def _weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten().float() for parameter in model.parameters()])


def _tolerance(accelerator: Accelerator) -> float:
    return 0.1 if accelerator.mixed_precision == "fp8" else 1e-4  # layers of fp8 stay so


def _compare(what: str, got: Any, expected: torch.Tensor, tolerance: float = 1e-6) -> list[str]:
    got, expected = got.cpu(), expected.cpu()
    if got.shape != expected.shape:
        return [f"{what}: shape {tuple(got.shape)}, where {tuple(expected.shape)} was expected"]
    off = float((got - expected).abs().max())
    return [] if off <= tolerance else [f"{what}: off by {off:.2g}"]  # NaN is wrong, too


CHECKS: tuple[Callable[[Accelerator], list[str]], ...] = (
    check_processes,
    check_collectives,
    check_loaders,
    check_training,
    check_accumulation,
    check_precision,
)


def main() -> int:
    """Run the checks; the main process says what passed. Returns the exit code."""
    accelerator = Accelerator()
    accelerator.print(
        f"{accelerator.num_processes} process(es), {accelerator.distributed_type.value}, device "
        f"{accelerator.device.type}, mixed precision {accelerator.mixed_precision}"
    )
    failed = 0
    for check in CHECKS:
        wrong = sorted(set(gather_object(check(accelerator))))
        failed += bool(wrong)
        accelerator.print(f"{'FAILED' if wrong else 'passed'}: {check.__doc__}{''.join(f'; {one}' for one in wrong)}")
        accelerator.free_memory()
    total = len(CHECKS)
    accelerator.print(f"{total - failed} of {total} checks passed{'' if failed else ': ready to train'}")
    accelerator.end_training()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

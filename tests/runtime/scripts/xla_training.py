"""Trains by XLA on the virtual devices that the environment names, for test_xla.py: python xla_training.py FOLDER.

It compares with plain torch on the CPU, and asserts.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator
from accelerate_runtime.utils import DistributedType, is_torch_xla_available, set_seed

FOLDER, DEVICES, BATCH = Path(sys.argv[1]), int(os.environ["CPU_NUM_DEVICES"]), 16


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Embedding(20, 16), nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(32, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def dataset() -> TensorDataset:
    drawn = torch.Generator().manual_seed(3)
    labels = torch.randint(0, 6, (72,), generator=drawn)
    return TensorDataset((torch.randint(0, 20, (72, 4), generator=drawn) + labels.view(-1, 1)) % 20, labels)


def loaders(steps: int) -> tuple[Any, Any]:
    return DataLoader(dataset(), BATCH // steps, shuffle=True), DataLoader(dataset(), BATCH)


class Training:
    """Two epochs with accumulation, clipping, a schedule and evaluation, by a library's objects or in plain torch."""

    def __init__(self, accelerator: Any, steps: int) -> None:
        set_seed(5)
        self.accelerator, self.steps = accelerator, steps
        self.model: Any = Net()
        self.optimizer: Any = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler: Any = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.5)
        self.loader, self.held_out = loaders(steps)
        if accelerator is not None:
            self.model, self.optimizer, self.scheduler, self.loader, self.held_out = accelerator.prepare(
                self.model, self.optimizer, self.scheduler, self.loader, self.held_out
            )
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.right: list[int] = []

    def epoch(self) -> None:
        for number, (x, y) in enumerate(self.loader, 1):
            last = number % self.steps == 0 or number == len(self.loader)
            if self.accelerator is None:
                self.plain_step(x, y, last)
            else:
                self.step(x, y)
        self.model.eval()
        count = 0
        with torch.no_grad():
            for x, y in self.held_out:
                pair = self.model(x).argmax(-1), y
                guessed, wanted = pair if self.accelerator is None else self.accelerator.gather_for_metrics(pair)
                count += int((guessed == wanted).sum())
        self.model.train()
        self.right.append(count)

    def step(self, x: Any, y: Any) -> None:
        assert x.device.type == "xla"
        with self.accelerator.accumulate(self.model):
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.accelerator.backward(loss)
            norm = self.accelerator.clip_grad_norm_(self.model.parameters(), 0.5)
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
        self.losses.append(loss.item())
        self.norms.append(float(norm))

    def plain_step(self, x: Any, y: Any, last: bool) -> None:
        loss = nn.functional.cross_entropy(self.model(x), y)
        (loss / self.steps).backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 0.5) if last else torch.tensor(0.0)
        if last:
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
        self.losses.append(loss.item())
        self.norms.append(float(norm))


def close(mine: list[float], plain: list[float], tolerance: float = 1e-5) -> None:
    apart = max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(mine, plain, strict=True))
    assert apart < tolerance, (apart, mine, plain)


def check_selection() -> None:
    accelerator = Accelerator()
    assert accelerator.device.type == "xla"
    assert accelerator.distributed_type == DistributedType.XLA
    assert (accelerator.num_processes, accelerator.is_main_process) == (1, True)
    assert is_torch_xla_available()
    assert not is_torch_xla_available(check_is_tpu=True)
    for strategy in ("ddp", "fsdp"):
        with pytest.raises(ValueError, match="it is 'xla' that trains"):
            Accelerator(strategy=strategy)
    with pytest.raises(ValueError, match="cannot scale gradients on xla; use 'bf16'"):
        Accelerator(mixed_precision="fp16")


def check_training() -> None:
    for steps in (1, 4):
        mine, plain = Training(Accelerator(gradient_accumulation_steps=steps), steps), Training(None, steps)
        # the two draw the same orders one after the other, not in turns
        for training in (mine, plain):
            set_seed(6)
            training.epoch()
            training.epoch()
        close(mine.losses, plain.losses)
        sums = [(a, b) for a, b in zip(mine.norms, plain.norms, strict=True) if b]
        close([a for a, _ in sums], [b for _, b in sums])
        assert mine.right == plain.right
        mine.accelerator.free_memory()


def check_division() -> None:
    """Each device has its part of a batch, and the whole model."""
    import torch_xla

    training = Training(Accelerator(), 1)
    x, _ = next(iter(training.loader))
    told = torch_xla._XLAC._get_xla_sharding_spec(x)
    assert (f"devices=[{DEVICES},1]" in told) == (DEVICES > 1), told
    assert "devices=" not in torch_xla._XLAC._get_xla_sharding_spec(training.model.head.weight)
    training.accelerator.free_memory()


def check_bf16() -> None:
    mine, plain = Training(Accelerator(mixed_precision="bf16"), 1), Training(None, 1)
    for training in (mine, plain):
        set_seed(6)
        training.epoch()
    close(mine.losses, plain.losses, 2e-2)
    assert mine.losses != plain.losses
    assert mine.model.head.weight.dtype is torch.float32
    mine.accelerator.free_memory()


def check_states() -> None:
    """A state in the middle of an epoch goes on, with the device's generator, and files need no XLA."""
    accelerator = Accelerator()
    set_seed(7)
    model: Any = Net(dropout=0.3)
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loaders(1)[0])

    def rest(skip: int) -> list[float]:
        losses = []
        for number, (x, y) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            if number == 2 and skip:
                accelerator.save_state(FOLDER / "state")
        return losses

    whole = rest(skip=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    accelerator.load_state(FOLDER / "state")
    again = rest(skip=0)
    assert again == whole[2:], (again, whole)
    assert all(not value.is_cpu for value in optimizer.optimizer.state[model.head.weight].values() if value.ndim)
    weights = accelerator.get_state_dict(model)
    assert all(value.is_cpu for value in weights.values())
    accelerator.save(weights, FOLDER / "weights.pt")
    accelerator.save_model(model, FOLDER / "exported")
    losses = torch.tensor(whole)
    torch.save(losses, FOLDER / "losses.pt")


def main() -> None:
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check()
            print(f"{name}: ok", flush=True)


if __name__ == "__main__":
    main()

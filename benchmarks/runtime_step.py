"""A training step on one process, prepared beside raw: the smaller the model, the more our overhead shows.

python benchmarks/runtime_step.py [ROUNDS]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count

import torch
from _common import line, take_turns
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator

BATCH, STEPS = 16, 100  # of an epoch


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(STEPS * BATCH, 32), torch.randn(STEPS * BATCH, 1))

    def training(kind: str, every: int = 1, clip: bool = False) -> Iterator[None]:
        """Steps without end, with an optimizer step after each `every` micro-batches."""
        torch.manual_seed(0)
        model: nn.Module = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
        loader = DataLoader(data, batch_size=BATCH, shuffle=True)
        loss_of = nn.MSELoss()

        def raw() -> Iterator[None]:
            for _ in count():
                for number, (x, y) in enumerate(loader, 1):
                    loss = loss_of(model(x), y)
                    (loss if every == 1 else loss / every).backward()
                    if number % every == 0:
                        if clip:
                            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                        optimizer.step()
                        scheduler.step()
                        optimizer.zero_grad()
                    yield

        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=every)
        if kind != "prepared":
            return raw()
        ours = accelerator.prepare(model, optimizer, scheduler, loader)
        our_model, our_optimizer, our_scheduler, our_loader = ours

        def plain() -> Iterator[None]:
            for _ in count():
                for x, y in our_loader:
                    accelerator.backward(loss_of(our_model(x), y))
                    if clip:
                        accelerator.clip_grad_norm_(our_model.parameters(), 1.0)
                    our_optimizer.step()
                    our_scheduler.step()
                    our_optimizer.zero_grad()
                    yield

        def accumulating() -> Iterator[None]:
            for _ in count():
                for x, y in our_loader:
                    with accelerator.accumulate(our_model):
                        accelerator.backward(loss_of(our_model(x), y))
                        our_optimizer.step()
                        our_scheduler.step()
                        our_optimizer.zero_grad()
                    yield

        return plain() if every == 1 else accumulating()

    for name, every, clip, target, accelerate in (
        ("step, one process", 1, False, 1.05, "1.59"),
        ("step, one process, clipping", 1, True, 1.06, "1.56"),
        ("step, one process, accumulating", 4, False, 1.06, "1.51"),
    ):
        kinds = {kind: training(kind, every, clip) for kind in ("raw", "prepared", "raw again")}
        ratio, again = take_turns(kinds, rounds)
        print(line(name, f"{ratio:.3f} x raw PyTorch", ratio, target, "", accelerate, f"(raw x raw {again:.3f})"))


if __name__ == "__main__":
    main(*(int(text) for text in [*sys.argv[1:], "400"][:1]))

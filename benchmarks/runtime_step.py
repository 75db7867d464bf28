"""A training step on one process, prepared beside raw: the smaller the model, the more our overhead shows.

python benchmarks/runtime_step.py [ROUNDS] [STEPS]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from runtime_common import interleave, report
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator

BATCH = 16


def main(rounds: int, steps: int) -> None:
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(steps * BATCH, 32), torch.randn(steps * BATCH, 1))

    def epoch(prepared: bool, every: int = 1) -> Callable[[], None]:
        """One epoch of steps, with an optimizer step after each `every` micro-batches."""
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
        loader = DataLoader(data, batch_size=BATCH, shuffle=True)
        loss_of = nn.MSELoss()

        def raw() -> None:
            for number, (x, y) in enumerate(loader, 1):
                loss = loss_of(model(x), y)
                (loss if every == 1 else loss / every).backward()
                if number % every == 0:
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()

        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=every)
        if not prepared:
            return raw
        ours = accelerator.prepare(model, optimizer, scheduler, loader)
        our_model, our_optimizer, our_scheduler, our_loader = ours

        def plain() -> None:
            for x, y in our_loader:
                accelerator.backward(loss_of(our_model(x), y))
                our_optimizer.step()
                our_scheduler.step()
                our_optimizer.zero_grad()

        def accumulating() -> None:
            for x, y in our_loader:
                with accelerator.accumulate(our_model):
                    accelerator.backward(loss_of(our_model(x), y))
                    our_optimizer.step()
                    our_scheduler.step()
                    our_optimizer.zero_grad()

        return plain if every == 1 else accumulating

    for title, every, target in (("step, one process", 1, "<= 1.10"), ("the same, accumulating 4", 4, "none")):
        actions = {"raw": epoch(False, every), "prepared": epoch(True, every), "raw again": epoch(False, every)}
        report(title, interleave(actions, rounds), steps, target)


if __name__ == "__main__":
    main(*(int(text) for text in [*sys.argv[1:], "11", "150"][:2]))

"""Stop at any moment, start again, and go on as if nothing had happened.

    python examples/checkpoint_resume.py --stop_after 20   # ends in the middle of an epoch
    python examples/checkpoint_resume.py                   # goes on from there, to the loss of a run that never stopped

`save_state` keeps everything that training depends on: weights, optimizer, schedule, random states, and where the
loader stands in its epoch. A state appears whole or not at all: a kill in the middle of a save loses nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator, ProjectConfiguration
from accelerate_runtime.utils import set_seed


class Progress:
    """What the script itself has to remember: anything with these two methods can be registered."""

    def __init__(self) -> None:
        self.epoch = self.step = 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.step = state["epoch"], state["step"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--project_dir", default="resumable")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--stop_after", type=int, default=None, help="steps, to try it")
    args = parser.parse_args()

    # States are named checkpoint_0, checkpoint_1, … below project_dir, and the two latest are kept.
    project = ProjectConfiguration(args.project_dir, automatic_checkpoint_naming=True, total_limit=2)
    accelerator = Accelerator(project_config=project)
    set_seed(0)
    data = torch.randn(512, 8)
    loader = DataLoader(TensorDataset(data, data.sum(1, keepdim=True)), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    progress = Progress()
    accelerator.register_for_checkpointing(progress)

    if any(Path(args.project_dir).glob("checkpoints/checkpoint_*")):
        accelerator.load_state("latest")
        accelerator.print(f"going on after step {progress.step}")
    loss = torch.zeros(())
    while progress.epoch < args.epochs:
        for x, y in loader:  # after load_state: the rest of the epoch that was interrupted
            loss = (model(x) - y).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            progress.step += 1
            if progress.step % 10 == 0:
                accelerator.save_state(async_save=True)  # writes while training goes on
            if progress.step == args.stop_after:
                accelerator.end_training()
                return
        progress.epoch += 1
    accelerator.print(f"final loss {accelerator.reduce(loss.detach(), 'mean').item():.6f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

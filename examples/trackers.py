"""Log a training run with experiment trackers.

python examples/trackers.py                                    # JSON lines, which need no package
python examples/trackers.py --log_with jsonl tensorboard       # several at once; `pip install tensorboard` first
accelerate-runtime launch --cpu --num_processes 2 examples/trackers.py
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator
from accelerate_runtime.utils import set_seed


def points(count):
    """Points of the plane, and whether each lies in the unit circle."""
    x = torch.rand(count, 2) * 2 - 1
    return TensorDataset(x, (x.norm(dim=1) < 0.8).long())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log_with", nargs="+", default=["jsonl"], help="names of trackers, or 'all'")
    parser.add_argument("--project_dir", default="runs", help="where trackers that keep files write them")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    # Name the trackers here. Those that keep files need a project_dir.
    accelerator = Accelerator(log_with=args.log_with, project_dir=args.project_dir)

    # Start them, with the hyper-parameters. Only the main process has trackers: nothing here needs an `if`.
    config = {"lr": 0.05, "batch_size": 32, "epochs": args.epochs}
    accelerator.init_trackers("circle", config=config)

    set_seed(0)
    data = points(512)
    loader = DataLoader(data, batch_size=config["batch_size"], shuffle=True)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    step = 0
    for epoch in range(config["epochs"]):
        right = 0
        for x, y in loader:
            optimizer.zero_grad()
            output = model(x)
            loss = nn.functional.cross_entropy(output, y)
            accelerator.backward(loss)
            optimizer.step()
            # The mean over all processes; a tensor of one number is logged as that number.
            accelerator.log({"loss": accelerator.reduce(loss.detach(), "mean")}, step=step)
            right += accelerator.gather_for_metrics(output.argmax(dim=1) == y).sum().item()
            step += 1
        accelerator.log({"accuracy": right / len(data)}, step=step)
        accelerator.print(f"epoch {epoch}: accuracy {right / len(data):.3f}")

    # Last of all: finish the trackers, and leave the process group.
    accelerator.end_training()
    accelerator.print(f"logged {step} steps to {Path(args.project_dir).resolve()}")


if __name__ == "__main__":
    main()

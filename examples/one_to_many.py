"""Train on one device or on many, without a change.

    python examples/one_to_many.py
    accelerate-runtime launch --cpu --num_processes 2 examples/one_to_many.py

Each process sees its part of every epoch, and the gradients are those of all processes' batches together.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator
from accelerate_runtime.utils import set_seed


def spirals(count):
    """Points of two spirals in the plane, and which of the two each point is on."""
    kind = torch.randint(0, 2, (count,))
    angle = 4 * torch.rand(count) + 0.5
    turned = angle + 3.14159 * kind
    points = torch.stack([angle * turned.cos(), angle * turned.sin()], dim=1)
    return TensorDataset(points + 0.1 * torch.randn(count, 2), kind)


def main():
    accelerator = Accelerator()
    set_seed(0)
    # The batch size is that of one process: halve it on two, and every step sees the same 64 samples.
    size = 64 // accelerator.num_processes
    loader = DataLoader(spirals(1024), batch_size=size, shuffle=True)
    test_loader = DataLoader(spirals(256), batch_size=64)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)

    # Models and batches go to the device of the process; no .to(device) is needed.
    model, optimizer, loader, test_loader = accelerator.prepare(model, optimizer, loader, test_loader)

    for epoch in range(6):
        model.train()
        for points, kind in loader:
            loss = nn.functional.cross_entropy(model(points), kind)
            accelerator.backward(loss)  # instead of loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        model.eval()
        losses, right = [], []
        for points, kind in test_loader:
            with torch.no_grad():
                output = model(points)
            loss = nn.functional.cross_entropy(output, kind, reduction="none")
            # Every process gets all results, each sample's once, in the order of the dataset.
            loss, hits = accelerator.gather_for_metrics((loss, output.argmax(dim=1) == kind))
            losses.append(loss)
            right.append(hits)
        test_loss, accuracy = torch.cat(losses).mean(), torch.cat(right).float().mean()
        accelerator.print(f"epoch {epoch}: accuracy {accuracy:.3f}")  # printed once

    accelerator.print(f"final loss {test_loss:.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

"""Train in mixed precision. The script says nothing of it: the launch does, or the argument.

    python examples/mixed_precision.py --mixed_precision bf16
    accelerate-runtime launch --cpu --num_processes 2 --mixed_precision bf16 examples/mixed_precision.py

"fp16" scales the loss, so that small gradients are not lost, and is meant for GPUs; "bf16" needs no scaling.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator
from accelerate_runtime.utils import set_seed


def waves(count):
    """Noisy sine waves of two frequencies, 64 numbers each, and which of the two each one has."""
    kind = torch.randint(0, 2, (count, 1))
    time = torch.linspace(0, 6.28, 64)
    return TensorDataset(torch.sin(time * (kind * 2 + 2)) + 0.5 * torch.randn(count, 64), kind.squeeze(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixed_precision", choices=["no", "fp16", "bf16"], help="by default what the launcher said")
    args = parser.parse_args()

    accelerator = Accelerator(mixed_precision=args.mixed_precision)
    set_seed(0)
    loader = DataLoader(waves(512), batch_size=32, shuffle=True)
    test_loader = DataLoader(waves(256), batch_size=64)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer, loader, test_loader = accelerator.prepare(model, optimizer, loader, test_loader)

    for epoch in range(3):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            # The model runs under autocast; its parameters, gradients and optimizer stay in float32.
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)  # with fp16, scales the loss
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)  # unscales first
            optimizer.step()  # with fp16, leaves out a step whose gradients overflowed

        model.eval()
        right = seen = 0
        for x, y in test_loader:
            # Other computations get autocast by this context.
            with torch.no_grad(), accelerator.autocast():
                guess = model(x).argmax(dim=1)
            guess, y = accelerator.gather_for_metrics((guess, y))
            right, seen = right + (guess == y).sum().item(), seen + len(y)
        accelerator.print(f"epoch {epoch}: {right} of {seen} right in {accelerator.mixed_precision}")

    accelerator.end_training()


if __name__ == "__main__":
    main()

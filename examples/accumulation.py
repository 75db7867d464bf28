"""Accumulate gradients: one optimizer step for several batches, here of texts that differ in length.

    python examples/accumulation.py
    accelerate-runtime launch --cpu --num_processes 2 examples/accumulation.py

A text's loss is a sum over its tokens. `num_items` tells how many there are: each step then has the gradients of the
mean over all tokens of its window, on all processes: the numbers don't depend on how texts fall into batches.
"""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from accelerate_runtime import Accelerator
from accelerate_runtime.utils import set_seed

WINDOW, BATCH, VOCABULARY, PADDING = 16, 4, 12, -100  # a window is the texts of one optimizer step


def texts(count):
    """Sequences in which each token is the one before plus 1, 2 or 3, the same throughout a text."""
    for _ in range(count):
        length, start, step = (int(torch.randint(*bounds, ())) for bounds in ((4, 20), (0, VOCABULARY), (1, 4)))
        yield (start + step * torch.arange(length)) % VOCABULARY


def collate(batch):
    """What to read, and what comes next, padded to the longest text."""
    inputs = pad_sequence([text[:-1] for text in batch], batch_first=True)
    targets = pad_sequence([text[1:] for text in batch], batch_first=True, padding_value=PADDING)
    return inputs, targets


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.read = nn.GRU(32, 64, batch_first=True)
        self.guess = nn.Linear(64, VOCABULARY)

    def forward(self, inputs):
        return self.guess(self.read(self.embed(inputs))[0])


def main():
    accelerator = Accelerator()
    # The same texts in each step, on however many processes.
    accelerator.gradient_accumulation_steps = WINDOW // BATCH // accelerator.num_processes
    set_seed(0)
    loader = DataLoader(list(texts(500)), batch_size=BATCH, shuffle=True, collate_fn=collate)
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for epoch in range(4):
        total = torch.zeros(2, device=accelerator.device)  # the losses' sum, and of how many tokens
        for inputs, targets in loader:
            # Processes exchange gradients, and the optimizer steps, with the last batch of a window (or of the epoch).
            with accelerator.accumulate(model):
                logits = model(inputs)
                loss = nn.functional.cross_entropy(
                    logits.flatten(0, 1), targets.flatten(), ignore_index=PADDING, reduction="sum"
                )
                tokens = (targets != PADDING).sum()
                accelerator.backward(loss, num_items=tokens)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)  # where the window ends
                optimizer.step()
                optimizer.zero_grad()
                total += torch.stack([loss.detach(), tokens])
        summed, tokens = accelerator.reduce(total, "sum")
        accelerator.print(f"epoch {epoch}: loss {summed / tokens:.4f}")

    accelerator.print(f"final loss {summed / tokens:.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()

"""AM340: gradient accumulation."""

from __future__ import annotations

from support.migration import IMPORTS, check_migrated

ACCUMULATING = (
    IMPORTS
    + """
    +accelerator = Accelerator(gradient_accumulation_steps=4)
     model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
)
PREPARED = ACCUMULATING.replace("gradient_accumulation_steps=4", "")
KEEPING = PREPARED.replace("    +from acc", "    +from contextlib import nullcontext\n    +from acc")


def test_a_modulo_becomes_accumulate_and_the_loss_is_divided_by_the_accelerator() -> None:
    check_migrated(
        ACCUMULATING,
        """
         for i, (x, y) in enumerate(loader):
        -    loss = F.cross_entropy(model(x), y) / 4
        -    loss.backward()
        -    if (i + 1) % 4 == 0:
        !    AM340 review: kept the gradients of a last window that is not full
        -        optimizer.step()
        -        optimizer.zero_grad()
        +    with accelerator.accumulate(model):
        +        loss = F.cross_entropy(model(x), y)
        +        accelerator.backward(loss)
        +        optimizer.step()
        +        optimizer.zero_grad()
        """,
    )


def test_a_window_that_ends_with_the_loader_is_the_accelerators_own() -> None:
    check_migrated(
        ACCUMULATING,
        """
         for i, (x, y) in enumerate(loader):
        -    loss = F.cross_entropy(model(x), y)
        -    loss = loss / 4
        -    loss.backward()
        -    if (i + 1) % 4 == 0 or i + 1 == len(loader):
        !    AM340 migrated: steps once in 4 batches
        -        optimizer.step()
        -        optimizer.zero_grad()
        +    with accelerator.accumulate(model):
        +        loss = F.cross_entropy(model(x), y)
        +        accelerator.backward(loss)
        +        optimizer.step()
        +        optimizer.zero_grad()
        """,
    )


def test_gradients_are_clipped_where_they_are_complete() -> None:
    check_migrated(
        ACCUMULATING,
        """
         for i, (x, y) in enumerate(loader):
        -    loss = F.cross_entropy(model(x), y)
        -    (loss / 4).backward()
        -    if (i + 1) % 4 == 0 or (i + 1) == len(loader):
        -        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        -        optimizer.step()
        -        optimizer.zero_grad()
        +    with accelerator.accumulate(model):
        +        loss = F.cross_entropy(model(x), y)
        +        accelerator.backward(loss)
        +        if accelerator.sync_gradients:
        +            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        +        optimizer.step()
        +        optimizer.zero_grad()
        """,
    )


def test_a_schedule_over_the_loader_steps_with_the_window() -> None:
    check_migrated(
        ACCUMULATING.replace(
            "    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
            "     scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=len(loader) // 4)\n"
            "    +model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)",
        ),
        """
         for i, (x, y) in enumerate(loader):
        -    loss = F.cross_entropy(model(x), y) / 4
        -    loss.backward()
        -    if (i + 1) % 4 == 0 or i + 1 == len(loader):
        -        optimizer.step()
        -        scheduler.step()
        -        optimizer.zero_grad()
        +    with accelerator.accumulate(model):
        +        loss = F.cross_entropy(model(x), y)
        +        accelerator.backward(loss)
        +        optimizer.step()
        +        scheduler.step()
        +        optimizer.zero_grad()
        """,
    )


def test_a_schedule_in_steps_of_one_process_waits_for_the_step() -> None:
    check_migrated(
        ACCUMULATING.replace(
            "    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
            "     total = 8\n"
            "     scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=total)\n"
            "    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        ),
        """
         while scheduler.last_epoch < total:
             for i, (x, y) in enumerate(loader):
        -        loss = F.cross_entropy(model(x), y) / 4
        -        loss.backward()
        -        if (i + 1) % 4 == 0 or i + 1 == len(loader):
        -            optimizer.step()
        -            scheduler.step()
        -            optimizer.zero_grad()
        +        with accelerator.accumulate(model):
        +            loss = F.cross_entropy(model(x), y)
        +            accelerator.backward(loss)
        +            optimizer.step()
        +            if accelerator.sync_gradients:
        +                scheduler.step()
        +            optimizer.zero_grad()
        """,
    )


def test_clearing_at_the_top_of_a_window_moves_behind_the_step() -> None:
    check_migrated(
        ACCUMULATING,
        """
         for i, (x, y) in enumerate(loader):
        -    if i % 4 == 0:
        -        optimizer.zero_grad()
        -    loss = F.cross_entropy(model(x), y) / 4
        -    loss.backward()
        -    if i % 4 == 4 - 1 or i == len(loader) - 1:
        -        optimizer.step()
        +    with accelerator.accumulate(model):
        +        loss = F.cross_entropy(model(x), y)
        +        accelerator.backward(loss)
        +        optimizer.step()
        +        optimizer.zero_grad()
        """,
    )


def test_the_number_is_read_where_the_accelerator_is_made() -> None:
    check_migrated(
        """
         import argparse

         import torch
         import torch.nn.functional as F
        +from accelerate_runtime import Accelerator
         from torch import nn
         from torch.utils.data import DataLoader, TensorDataset


        -def train(model, device, loader, optimizer, accum):
        +def train(model, accelerator, loader, optimizer, accum):
             for i, (x, y) in enumerate(loader):
        -        x, y = x.to(device), y.to(device)
        -        loss = F.cross_entropy(model(x), y)
        -        if accum > 1:
        -            loss = loss / accum
        -        loss.backward()
        -        if (i + 1) % accum == 0 or i + 1 == len(loader):
        -            optimizer.step()
        -            optimizer.zero_grad()
        +        with accelerator.accumulate(model):
        +            loss = F.cross_entropy(model(x), y)
        +            accelerator.backward(loss)
        +            optimizer.step()
        +            optimizer.zero_grad()


         def main():
        -    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
             parser = argparse.ArgumentParser()
             parser.add_argument("--accum", type=int, default=4)
             args = parser.parse_args()
             data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
        +    accelerator = Accelerator(gradient_accumulation_steps=args.accum)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        -    model = nn.Linear(8, 3).to(device)
        +    model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        -    train(model, device, loader, optimizer, args.accum)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        +    train(model, accelerator, loader, optimizer, args.accum)


         main()
        """,
    )


def test_a_loss_that_is_logged_keeps_its_value() -> None:
    check_migrated(
        ACCUMULATING,
        """
         total = shown = 0.0
         for i, (x, y) in enumerate(loader):
        -    loss = F.cross_entropy(model(x), y) / 4
        -    loss.backward()
        -    total += loss.item()
        -    if (i + 1) % 4 == 0 or i + 1 == len(loader):
        -        optimizer.step()
        -        optimizer.zero_grad()
        -    shown += loss.item() * 4
        +    with accelerator.accumulate(model):
        +        loss = F.cross_entropy(model(x), y)
        +        accelerator.backward(loss)
        +        total += loss.item() / 4
        +        optimizer.step()
        +        optimizer.zero_grad()
        +    shown += loss.item()
        """,
    )


def test_a_window_that_steps_in_its_first_round_keeps_its_modulo() -> None:
    check_migrated(
        KEEPING,
        """
         for i, (x, y) in enumerate(loader):
        -    loss = F.cross_entropy(model(x), y) / 4
        -    loss.backward()
        +    with nullcontext() if i % 4 == 0 else accelerator.no_sync(model):
        +        loss = F.cross_entropy(model(x), y) / 4
        +        accelerator.backward(loss)
             if i % 4 == 0:
                 optimizer.step()
                 optimizer.zero_grad()
        """,
    )


def test_gradients_that_are_added_up_undivided_keep_their_modulo() -> None:
    check_migrated(
        KEEPING,
        """
         for i, (x, y) in enumerate(loader):
        -    loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    with nullcontext() if (i + 1) % 4 == 0 else accelerator.no_sync(model):
        +        loss = F.cross_entropy(model(x), y)
        +        accelerator.backward(loss)
             if (i + 1) % 4 == 0:
                 optimizer.step()
                 optimizer.zero_grad()
        """,
    )


def test_an_inner_loop_averages_gradients_in_its_last_round() -> None:
    check_migrated(
        KEEPING,
        """
         for x, y in loader:
             optimizer.zero_grad()
             for part in range(4):
        -        rows = slice(8 * part, 8 * part + 8)
        -        loss = F.cross_entropy(model(x[rows]), y[rows]) / 4
        -        loss.backward()
        +        rows = slice(8 * part, 8 * part + 8)
        +        with nullcontext() if part == 4 - 1 else accelerator.no_sync(model):
        +            loss = F.cross_entropy(model(x[rows]), y[rows]) / 4
        +            accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_counter_that_moves_inside_the_micro_batch_cannot_tell_the_last_one_early() -> None:
    check_migrated(
        PREPARED,
        """
         step = 0
         for x, y in loader:
        !    AM340 note: this loop accumulates gradients
             loss = F.cross_entropy(model(x), y) / 4
             step += 1
        -    loss.backward()
        +    accelerator.backward(loss)
             if step % 4 == 0:
                 optimizer.step()
                 optimizer.zero_grad()
        """,
    )


def test_the_number_may_be_known_only_behind_the_first_use_of_the_accelerator() -> None:
    check_migrated(
        KEEPING,
        """
         every = 4
         for i, (x, y) in enumerate(loader):
        -    loss = F.cross_entropy(model(x), y) / every
        -    loss.backward()
        +    with nullcontext() if (i + 1) % every == 0 else accelerator.no_sync(model):
        +        loss = F.cross_entropy(model(x), y) / every
        +        accelerator.backward(loss)
             if (i + 1) % every == 0:
                 optimizer.step()
                 optimizer.zero_grad()
        """,
    )


def test_no_sync_of_the_wrapper_is_asked_of_the_accelerator() -> None:
    check_migrated(
        PREPARED,
        """
         for i, (x, y) in enumerate(loader):
        -    with model.no_sync():
        -        F.cross_entropy(model(x[:16]), y[:16]).backward()
        -    F.cross_entropy(model(x[16:]), y[16:]).backward()
        +    with accelerator.no_sync(model):
        +        accelerator.backward(F.cross_entropy(model(x[:16]), y[:16]))
        +    accelerator.backward(F.cross_entropy(model(x[16:]), y[16:]))
             optimizer.step()
             optimizer.zero_grad()
        """,
    )


def test_a_loop_that_does_more_at_the_boundary_keeps_its_modulo() -> None:
    check_migrated(
        KEEPING,
        """
         steps = 0
         for i, (x, y) in enumerate(loader):
        -    loss = F.cross_entropy(model(x), y) / 4
        -    loss.backward()
        +    with nullcontext() if (i + 1) % 4 == 0 else accelerator.no_sync(model):
        +        loss = F.cross_entropy(model(x), y) / 4
        +        accelerator.backward(loss)
             if (i + 1) % 4 == 0:
                 optimizer.step()
                 optimizer.zero_grad()
                 steps += 1
        """,
    )

"""AM450: numbers that processes add up are reduced by the accelerator."""

from __future__ import annotations

from support.migration import TRAINED, check_migrated, check_refused
from support.parallel import MADE, STARTED


def test_a_sum_over_processes() -> None:
    check_migrated(
        STARTED,
        """
         def mean(tensor):
             total = tensor.clone()
        -    dist.all_reduce(total, op=dist.ReduceOp.SUM)
        -    return total / dist.get_world_size()
        +    total = accelerator.reduce(total, reduction="sum")
        +    return total / accelerator.num_processes


        """,
        MADE,
        TRAINED,
        """
        -print(mean(loss.detach()).item())
        +accelerator.print(mean(loss.detach()).item())
        """,
    )


def test_what_is_gathered_is_not_added_up_again() -> None:
    check_migrated(
        STARTED,
        MADE.replace("optimizer, loader =", "optimizer, loader, test_loader =")
        .replace("optimizer, loader)", "optimizer, loader, test_loader)")
        .replace("    +model", "     test_loader = DataLoader(data, batch_size=32)\n    +model"),
        TRAINED,
        """
         right = torch.zeros(1)
         with torch.no_grad():
             for x, y in test_loader:
                 out = model(x)
        +        out, y = accelerator.gather_for_metrics((out, y))
                 right = right + (out.argmax(1) == y).sum()
        -dist.all_reduce(right)
        -print(right.item() / len(data))
        +accelerator.print(right.item() / len(data))
        """,
    )


def test_gradients_averaged_by_hand_refuse_the_file() -> None:
    check_refused(
        """
         import torch
         import torch.distributed as dist
         from torch import nn

         dist.init_process_group("gloo")
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         model(torch.ones(8)).mean().backward()
         for parameter in model.parameters():
             dist.all_reduce(parameter.grad)
        ! AM900 refused: gradients are averaged over processes by hand here
         optimizer.step()
        """
    )

"""AM410: the launcher and the accelerator start, join and end the processes."""

from __future__ import annotations

from support.migration import TRAINED, check_migrated
from support.parallel import GROUP_IMPORTS, MADE, STARTED


def test_the_accelerator_is_made_where_the_group_was() -> None:
    check_migrated(
        STARTED,
        MADE,
        TRAINED,
        """
        -dist.barrier()
        +accelerator.wait_for_everyone()
        -dist.destroy_process_group()
        +accelerator.end_training()
        """,
    )


def test_functions_that_only_set_up_go_with_their_calls() -> None:
    check_migrated(
        GROUP_IMPORTS.replace("import torch\n", "import torch\n", 1),
        """
        -def setup(backend):
        -    dist.init_process_group(backend)
        -    torch.cuda.set_device(dist.get_rank())


        -setup("nccl")
        +accelerator = Accelerator()
        """,
        MADE,
        TRAINED,
    )


def test_a_flag_around_the_set_up_goes_with_it() -> None:
    check_migrated(
        """
         import argparse
         import torch
        -import torch.distributed as dist
         import torch.nn.functional as F
        +from accelerate_runtime import Accelerator
         from torch import nn
         from torch.utils.data import DataLoader, TensorDataset

         data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
         parser = argparse.ArgumentParser()
         parser.add_argument("--distributed", action="store_true")
         args = parser.parse_args()
        -if args.distributed:
        -    dist.init_process_group("nccl")
        -    dist.barrier()
        +accelerator = Accelerator()
        """,
        MADE,
        TRAINED,
    )


def test_what_else_the_flag_decides_asks_the_accelerator() -> None:
    check_migrated(
        """
         import argparse
         import torch
        -import torch.distributed as dist
         import torch.nn.functional as F
        +from accelerate_runtime import Accelerator
         from torch import nn
         from torch.utils.data import DataLoader, TensorDataset

         data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
         args = argparse.ArgumentParser().parse_args()
        -if args.distributed:
        -    dist.init_process_group("nccl")
        +accelerator = Accelerator()
        """,
        MADE,
        TRAINED,
        """
         rows = []
        -if args.distributed:
        +if accelerator.num_processes > 1:
             rows.append(loss.item())
        """,
    )


def test_print_is_given_back() -> None:
    check_migrated(
        """
        -import builtins
         import torch
        -import torch.distributed as dist
         import torch.nn.functional as F
        +from accelerate_runtime import Accelerator
         from torch import nn
         from torch.utils.data import DataLoader, TensorDataset

         data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))


         def main():
        -    dist.init_process_group("nccl")
        -    if dist.get_rank() != 0:
        -        def quiet(*args):
        -            pass
        -        builtins.print = quiet
        +    accelerator = Accelerator()
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
        -        print(loss.item())
        +        accelerator.print(loss.item())


         main()
        """
    )

"""AM440: ranks and numbers of processes are asked of the accelerator."""

from __future__ import annotations

from support.migration import TRAINED, check_migrated
from support.parallel import GROUP_IMPORTS, STARTED

OS = GROUP_IMPORTS.replace("     import torch\n", "    -import os\n     import torch\n", 1)


def test_a_batch_size_is_divided_by_the_number_of_processes() -> None:
    check_migrated(
        STARTED,
        """
         model = nn.Linear(8, 3)
        -optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * dist.get_world_size())
        -loader = DataLoader(data, batch_size=32 // dist.get_world_size(), shuffle=True)
        +optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * accelerator.num_processes)
        +loader = DataLoader(data, batch_size=32 // accelerator.num_processes, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_what_the_launcher_says_in_the_environment() -> None:
    check_migrated(
        OS,
        """
        -world_size = int(os.environ.get("WORLD_SIZE", 1))
        -rank = int(os.environ["RANK"])
        -local_rank = int(os.getenv("LOCAL_RANK", "0"))
        -distributed = world_size > 1
        -if distributed:
        -    torch.cuda.set_device(local_rank)
        -    dist.init_process_group("nccl")
        -torch.manual_seed(17 + rank)
        +accelerator = Accelerator()
        +torch.manual_seed(17 + accelerator.process_index)
        """,
        """
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_division_under_the_flag_needs_no_flag() -> None:
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
        -    args.batch_size = args.batch_size // dist.get_world_size()
        +accelerator = Accelerator()
        +args.batch_size = args.batch_size // accelerator.num_processes
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_ranks_are_known_through_the_parameters_that_hand_them_on() -> None:
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


        -def join(rank, processes):
        -    dist.init_process_group("nccl", rank=rank, world_size=processes)
        -
        -
        -def mean(number, processes):
        -    dist.all_reduce(number)
        +def mean(accelerator, number, processes):
        +    number = accelerator.reduce(number, reduction="sum")
             return number / processes


        -def train(rank, processes):
        -    if processes > 1:
        -        join(rank, processes)
        +def train():
        +    accelerator = Accelerator()
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
             for x, y in loader:
                 optimizer.zero_grad()
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
        -        if processes > 1:
        -            print(mean(loss.detach(), processes).item())
        -        if rank == 0:
        +        if accelerator.num_processes > 1:
        +            accelerator.print(mean(accelerator, loss.detach(), accelerator.num_processes).item())
        +        if accelerator.is_main_process:
                     print(len(x))


         parser = argparse.ArgumentParser()
         parser.add_argument("--rank", type=int, default=0)
         args = parser.parse_args()
        -train(args.rank, torch.cuda.device_count())
        +train()
        """
    )

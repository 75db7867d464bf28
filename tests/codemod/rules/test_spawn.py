"""AM460: the launcher starts the processes, each of which calls what was spawned."""

from __future__ import annotations

from support.migration import check_migrated, check_refused

SPAWN = """
     import torch
    -import torch.distributed as dist
    -import torch.multiprocessing as mp
     import torch.nn.functional as F
    +from accelerate_runtime import Accelerator
     from torch import nn
     from torch.utils.data import DataLoader, TensorDataset

     data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))


"""
BODY = """
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
    +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for epoch in range(epochs):
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
    -            loss.backward()
    +            accelerator.backward(loss)
                 optimizer.step()


"""


def test_the_worker_is_called_without_the_number_of_its_process() -> None:
    check_migrated(
        SPAWN,
        """
        -def worker(rank, world_size, epochs):
        -    dist.init_process_group("nccl", rank=rank, world_size=world_size)
        -    torch.manual_seed(rank)
        +def worker(epochs):
        +    accelerator = Accelerator()
        +    torch.manual_seed(accelerator.process_index)
        """,
        BODY,
        """
        -world_size = torch.cuda.device_count()
        -mp.spawn(worker, args=(world_size, 3), nprocs=world_size)
        +worker(3)
        """,
    )


def test_the_call_for_one_device_stays() -> None:
    check_migrated(
        SPAWN,
        """
         def worker(rank, multiprocessing, epochs):
        -    if multiprocessing:
        -        dist.init_process_group("nccl")
        +    accelerator = Accelerator()
        """,
        BODY,
        """
        -multiprocessing = True
        -if multiprocessing:
        -    mp.spawn(worker, args=(True, 3), nprocs=2)
        -else:
        -    worker(0, False, 3)
        +worker(0, False, 3)
        """,
    )


def test_a_worker_of_another_file() -> None:
    check_refused(
        """
         import torch
         import torch.multiprocessing as mp
         from torch import nn

         from mine import worker

         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         model(torch.ones(8)).mean().backward()
         optimizer.step()
         mp.spawn(worker, nprocs=2)
        ! AM900 refused: what is spawned here is no function of this file
        """
    )


def test_arguments_that_are_unpacked_keep_their_places() -> None:
    check_migrated(
        SPAWN.replace("    -import torch.multiprocessing as mp\n", ""),
        """
         def worker(rank, world_size, epochs):
        -    dist.init_process_group("nccl", rank=rank, world_size=world_size)
        +    accelerator = Accelerator()
        """,
        BODY,
        """
         worker(*(0, 1, 3))
        """,
    )


def test_a_number_that_takes_the_name_of_the_world_size_stays() -> None:
    check_migrated(
        SPAWN,
        """
        -def worker(rank, world_size, epochs):
        -    dist.init_process_group("nccl", rank=rank, world_size=world_size)
        +def worker(world_size, epochs):
        +    accelerator = Accelerator()
        """,
        BODY.rstrip(),
        """
             world_size = 5
        -    print(world_size)
        +    accelerator.print(world_size)


         world_size = torch.cuda.device_count()
        -mp.spawn(worker, args=(world_size, 3), nprocs=world_size)
        +worker(world_size, 3)
        """,
    )

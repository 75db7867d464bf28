"""AM470: what is left of Horovod around a training that `prepare` spreads."""

from __future__ import annotations

from support.migration import TRAINED, check_migrated, check_refused

IMPORTS = """
    -import horovod.torch as hvd
     import torch
     import torch.nn.functional as F
    +from accelerate_runtime import Accelerator
     from torch import nn
     from torch.utils.data import DataLoader, TensorDataset

     data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
"""


def test_its_optimizer_broadcasts_and_settings_go() -> None:
    check_migrated(
        IMPORTS,
        """
        -hvd.init()
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
        -optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
        -compression = hvd.Compression.fp16
        -optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression=compression)
        -hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        +optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * accelerator.num_processes)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
        """
        -print(hvd.allreduce(loss.detach(), name="loss").item())
        +accelerator.print(accelerator.reduce(loss.detach(), reduction="mean").item())
        """,
    )


def test_adasum_has_no_counterpart() -> None:
    check_migrated(
        IMPORTS,
        """
        -hvd.init()
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        -optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Adasum)
        ! AM470 review: Adasum has no counterpart
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_an_optimizers_state_that_one_process_loads_for_all_refuses() -> None:
    check_refused(
        """
         import horovod.torch as hvd
         import torch
         from torch import nn
         from torch.utils.data import DataLoader

         hvd.init()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         if hvd.rank() == 0 and hvd.size() > 0:
             state = torch.load("last.pt")
             model.load_state_dict(state["model"])
             optimizer.load_state_dict(state["optimizer"])
        !    AM900 refused: load it on every process first
         optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
         hvd.broadcast_parameters(model.state_dict(), root_rank=0)
         hvd.broadcast_optimizer_state(optimizer, root_rank=0)
         for x in DataLoader(torch.randn(64, 8), batch_size=32, shuffle=True):
             optimizer.zero_grad()
             model(x).mean().backward()
             optimizer.step()
        """,
    )


def test_a_number_that_was_reduced_on_the_cpu_comes_back_there() -> None:
    check_migrated(
        IMPORTS,
        """
        -hvd.init()
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        -optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         total = torch.tensor(0.0)
        """,
        TRAINED,
        """
        -total += hvd.allreduce(loss.detach().cpu(), name="loss")
        +total += accelerator.reduce(loss.detach(), reduction="mean").cpu()
        """,
    )

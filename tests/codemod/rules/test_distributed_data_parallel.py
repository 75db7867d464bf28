"""AM420: `DistributedDataParallel` goes; `prepare` wraps the model, told the same."""

from __future__ import annotations

from support.migration import TRAINED, check_migrated
from support.parallel import GROUP_IMPORTS

IMPORTS = GROUP_IMPORTS.replace(
    "     from torch import nn\n",
    "     from torch import nn\n    -from torch.nn.parallel import DistributedDataParallel as DDP\n",
)
REST = """
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""


def test_the_wrapper_goes_and_its_settings_are_handed_on() -> None:
    check_migrated(
        IMPORTS.replace("import Accelerator", "import Accelerator, DistributedDataParallelKwargs"),
        """
        -dist.init_process_group("nccl")
        -rank = dist.get_rank()
        -model = DDP(nn.Linear(8, 3).cuda(rank), device_ids=[rank], find_unused_parameters=True)
        +accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
        +model = nn.Linear(8, 3)
        """,
        REST,
        TRAINED,
    )


def test_its_settings_stand_beside_those_of_the_scaler() -> None:
    handlers = ["GradScalerKwargs(init_scale=1024.0)", "DistributedDataParallelKwargs(find_unused_parameters=True)"]
    check_migrated(
        IMPORTS.replace("import Accelerator", "import Accelerator, DistributedDataParallelKwargs, GradScalerKwargs"),
        f"""
        -dist.init_process_group("nccl")
        -rank = dist.get_rank()
        -model = DDP(nn.Linear(8, 3).cuda(rank), device_ids=[rank], find_unused_parameters=True)
        -scaler = torch.cuda.amp.GradScaler(init_scale=1024.0)
        +accelerator = Accelerator(
        +    mixed_precision="fp16" if torch.cuda.is_available() else "no",
        +    kwargs_handlers=[{", ".join(handlers)}],
        +)
        +model = nn.Linear(8, 3)
        """,
        REST,
        """
         for x, y in loader:
             optimizer.zero_grad()
        -    with torch.cuda.amp.autocast():
        +    with accelerator.autocast():
                 loss = F.cross_entropy(model(x), y)
        -    scaler.scale(loss).backward()
        -    scaler.step(optimizer)
        -    scaler.update()
        +    accelerator.backward(loss)
        +    optimizer.step()
        """,
    )


def test_wrappers_that_are_told_different_things_are_for_a_person() -> None:
    check_migrated(
        IMPORTS.replace("import Accelerator", "import Accelerator, DistributedDataParallelKwargs"),
        """
        -dist.init_process_group("nccl")
        -one = DDP(nn.Linear(8, 3), broadcast_buffers=False)
        -two = DDP(nn.Linear(8, 3), find_unused_parameters=True)
        !AM420 review: told other than the one before
        +accelerator = Accelerator(
        +    kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False, find_unused_parameters=True)],
        +)
        +one = nn.Linear(8, 3)
        +two = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(list(one.parameters()) + list(two.parameters()), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +one, two, optimizer, loader = accelerator.prepare(one, two, optimizer, loader)
        """,
        TRAINED.replace("model(x)", "one(x) + two(x)"),
    )


def test_a_name_of_its_own_for_the_wrapper_goes() -> None:
    check_migrated(
        IMPORTS,
        """
        -dist.init_process_group("nccl")
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
        -ddp = DDP(model)
        """,
        """
        -optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        +optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
         for x, y in loader:
        -    loss = F.cross_entropy(ddp(x), y)
        +    loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        -torch.save(ddp.module.state_dict(), "net.pt")
        +accelerator.save(accelerator.get_state_dict(model), "net.pt")
        """,
    )


def test_a_name_for_the_model_without_its_wrapper_stays_what_it_is() -> None:
    check_migrated(
        IMPORTS,
        """
        -dist.init_process_group("nccl")
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         bare = model
        -if dist.get_world_size() > 1:
        -    model = DDP(model)
        -    bare = model.module
        """,
        REST,
        TRAINED,
        """
        -torch.save(bare.state_dict(), "net.pt")
        +accelerator.save(accelerator.get_state_dict(bare), "net.pt")
        """,
    )


def test_synchronised_batch_normalisation_stays() -> None:
    check_migrated(
        IMPORTS,
        """
        -dist.init_process_group("nccl")
        +accelerator = Accelerator()
         model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Linear(8, 3))
        -model = DDP(model)
        """,
        REST,
        TRAINED,
    )


def test_what_the_wrapper_wraps_is_no_second_model() -> None:
    """The wrapper is handed to a function that trains, what it wraps to what saves."""
    check_migrated(
        IMPORTS,
        """
         def train(model, optimizer, loader):
             for x, y in loader:
                 optimizer.zero_grad()
        -        F.cross_entropy(model(x.cuda()), y.cuda()).backward()
        +        accelerator.backward(F.cross_entropy(model(x), y))
                 optimizer.step()


        -dist.init_process_group("nccl")
        -rank = dist.get_rank()
        -model = DDP(nn.Linear(8, 3).cuda(rank), device_ids=[rank])
        -bare = model.module
        +accelerator = Accelerator()
        +model = nn.Linear(8, 3)
        +bare = accelerator.unwrap_model(model)
        """,
        REST,
        """
         train(model, optimizer, loader)
        -if rank == 0:
        -    torch.save(bare.state_dict(), "net.pt")
        +accelerator.save(accelerator.get_state_dict(bare), "net.pt")
        """,
    )


def test_a_trainer_that_makes_its_loader_in_a_method_beside_a_helper_that_sets_up() -> None:
    """What the helper only kept for the process group goes with it; the loader is prepared where it is made."""
    check_migrated(
        """
        -import os
        -
         import torch
         import torch.nn.functional as F
        -from torch import distributed as dist
        +from accelerate_runtime import Accelerator
         from torch import nn
        -from torch.nn.parallel import DistributedDataParallel as DDP
         from torch.utils.data import DataLoader, TensorDataset
        -from torch.utils.data.distributed import DistributedSampler


        -def set_up():
        -    rank = int(os.environ["LOCAL_RANK"])
        -    device: torch.device = torch.device(f"{torch.accelerator.current_accelerator()}:{rank}")
        -    backend = dist.get_default_backend_for_device(device)
        -    dist.init_process_group(backend=backend)
        -    torch.accelerator.set_device_index(rank)
        -
        -
         class Trainer:
             def __init__(self, model, optimizer, train_set, test_set):
        -        self.rank = int(os.environ["LOCAL_RANK"])
        +        self.accelerator = Accelerator()
        +        self.rank = self.accelerator.local_process_index
                 self.train_loader = self._loader(train_set)
                 self.test_loader = self._loader(test_set)
                 self.optimizer = optimizer
        -        self.model = DDP(model.to(self.rank), device_ids=[self.rank])
        +        self.model = model
        +        self.model, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)

             def _loader(self, data):
        -        return DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
        !    AM430 review: the order is the loader's own shuffle
        +        return self.accelerator.prepare(DataLoader(data, batch_size=8, shuffle=True))

             def run(self, loader, train):
                 for x, y in loader:
        -            x, y = x.to(self.rank), y.to(self.rank)
                     loss = F.cross_entropy(self.model(x), y)
                     if train:
                         self.optimizer.zero_grad()
        -                loss.backward()
        +                self.accelerator.backward(loss)
                         self.optimizer.step()


         def main():
        -    set_up()
             data = TensorDataset(torch.randn(64, 8), torch.randint(3, (64,)))
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             trainer = Trainer(model, optimizer, data, data)
             trainer.run(trainer.train_loader, train=True)
             trainer.run(trainer.test_loader, train=False)
        -    dist.destroy_process_group()


         main()
        """
    )

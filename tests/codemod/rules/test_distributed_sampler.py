"""AM430: `DistributedSampler` goes; `prepare` deals the batches between the processes."""

from __future__ import annotations

from accelerate_migrate.findings import Status, Target
from support.migration import TRAINED, check_migrated, check_refused, migrate, sketch
from support.parallel import GROUP_IMPORTS

IMPORTS = GROUP_IMPORTS.replace(
    "     from torch.utils.data import DataLoader, TensorDataset\n",
    "    -from torch.utils.data import DataLoader, DistributedSampler, TensorDataset\n"
    "    +from torch.utils.data import DataLoader, TensorDataset\n",
)
BEGIN = (
    IMPORTS
    + """
    -dist.init_process_group("nccl")
    +accelerator = Accelerator()
     model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
)


def test_the_loader_shuffles_where_the_sampler_did() -> None:
    check_migrated(
        BEGIN,
        """
        -sampler = DistributedSampler(data)
        -loader = DataLoader(data, batch_size=32, sampler=sampler)
        ! AM430 review: not the one that the DistributedSampler drew
        +loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        -sampler.set_epoch(0)
        """,
        TRAINED,
    )


def test_a_sampler_that_does_not_shuffle() -> None:
    check_migrated(
        BEGIN,
        """
        -loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data, shuffle=False))
        +loader = DataLoader(data, batch_size=32)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_sampler_for_several_processes_only_leaves_what_one_did() -> None:
    check_migrated(
        BEGIN,
        """
        -if dist.get_world_size() > 1:
        -    sampler = DistributedSampler(data)
        -else:
        -    sampler = None
        -loader = DataLoader(data, batch_size=32, shuffle=(sampler is None), sampler=sampler)
        ! AM430 migrated
        +loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        -if sampler is not None:
        -    sampler.set_epoch(1)
        """,
        TRAINED,
    )


def test_the_length_of_a_sampler_is_that_of_its_set() -> None:
    check_migrated(
        BEGIN,
        """
        -sampler = DistributedSampler(data, shuffle=False)
        -loader = DataLoader(data, batch_size=32, sampler=sampler)
        +loader = DataLoader(data, batch_size=32)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
        """
        -print(len(sampler))
        +accelerator.print(len(loader.dataset))
        """,
    )


def test_a_sampler_in_other_hands_refuses_the_file() -> None:
    check_refused(
        "import torch\nimport torch.distributed as dist\nimport torch.nn.functional as F\nfrom torch import nn\n"
        "from torch.utils.data import DataLoader, DistributedSampler\n\nfrom mine import batches, data\n",
        """
         dist.init_process_group("nccl")
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         sampler = DistributedSampler(data)
         loader = DataLoader(data, batch_sampler=batches(sampler))
        ! AM900 refused: in a way that has no counterpart
         for x, y in loader:
             F.cross_entropy(model(x), y).backward()
             optimizer.step()
        """,
    )


def test_a_variable_may_say_beside_the_sampler_whether_to_shuffle() -> None:
    check_migrated(
        BEGIN,
        """
        -if dist.get_world_size() > 1:
        -    sampler = DistributedSampler(data)
        -    shuffle = False
        -else:
        -    sampler = None
        -    shuffle = True
        -loader = DataLoader(data, batch_size=32, shuffle=shuffle, sampler=sampler)
        ! AM430 migrated
        +loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


OWN = """
     import torch
    -import torch.distributed as dist
    +from accelerate_runtime import Accelerator
     from torch import nn
     from torch.utils.data import DataLoader, DistributedSampler


     class Buckets(DistributedSampler):
         def __iter__(self):
             mine = list(super().__iter__())
             yield from (mine[start : start + 4] for start in range(0, len(mine), 4))


    -dist.init_process_group("nccl")
    +accelerator = Accelerator()
     data = torch.randn(96, 8)
     model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    -sampler = Buckets(data, num_replicas=dist.get_world_size(), rank=dist.get_rank())
    +sampler = Buckets(data, num_replicas=accelerator.num_processes, rank=accelerator.process_index)
     loader = DataLoader(data, batch_sampler=sampler)
    !AM430 note: `Buckets` deals between the processes itself
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
     for x in loader:
         optimizer.zero_grad()
    -    model(x).mean().backward()
    +    accelerator.backward(model(x).mean())
         optimizer.step()
"""


def test_a_sampler_of_the_script_that_deals_itself_keeps_doing_so() -> None:
    check_migrated(OWN)


def test_accelerate_would_deal_its_part_again() -> None:
    before = sketch(OWN).before
    result = migrate(before, target=Target.ACCELERATE)
    assert result.status is Status.REFUSED
    assert any("would deal each part again" in finding.message for finding in result.findings)


def test_a_loader_that_shuffles_itself_unless_a_sampler_does() -> None:
    check_migrated(
        BEGIN,
        """
        -distributed = dist.is_initialized()
        -sampler = DistributedSampler(data) if distributed else None
        -loader = DataLoader(data, batch_size=32, shuffle=False if distributed else True, sampler=sampler)
        +loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )

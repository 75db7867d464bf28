"""AM155: checkpoints are read to the CPU and reach the unwrapped model."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated, migrated


def test_a_checkpoint_is_read_to_the_cpu() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
        -state = torch.load("net.pt")
        +state = torch.load("net.pt", map_location="cpu")
         model.load_state_dict(state["net"])
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_place_that_the_script_chose_stays() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         model.load_state_dict(torch.load("net.pt", map_location="cpu"))
         model.load_state_dict(torch.load("net.pt", lambda storage, place: storage))
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_file_that_is_no_checkpoint_stays_where_it_was_saved() -> None:
    check_migrated(
        PREPARED,
        """
         vectors = torch.load("vectors.pt")
        ! AM155 note: left as it is
        """,
        TRAINED,
    )


def test_a_state_for_a_prepared_model_goes_to_the_unwrapped_one() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
        -model.load_state_dict(torch.load("other.pt"))
        +accelerator.unwrap_model(model).load_state_dict(torch.load("other.pt", map_location="cpu"))
        """,
    )


def test_a_file_of_this_run_is_waited_for() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
        -torch.save(model.state_dict(), "net.pt")
        +accelerator.save(accelerator.get_state_dict(model), "net.pt")
        -model.load_state_dict(torch.load("net.pt"))
        +accelerator.wait_for_everyone()
        +accelerator.unwrap_model(model).load_state_dict(torch.load("net.pt", map_location="cpu"))
        """,
    )


def test_the_optimizers_state_is_loaded_as_before() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
        -optimizer.load_state_dict(torch.load("opt.pt"))
        +optimizer.load_state_dict(torch.load("opt.pt", map_location="cpu"))
        """,
    )


def test_the_load_of_another_library_stays() -> None:
    check_migrated(
        "import json",
        PREPARED,
        """
         settings = json.load(open("settings.json"))
        """,
        TRAINED,
    )


def test_the_wait_stands_before_the_file_is_opened() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
        -with open("net.pt", "wb") as file:
        -    torch.save(model.state_dict(), file)
        +accelerator.save(accelerator.get_state_dict(model), "net.pt")
        +accelerator.wait_for_everyone()
         with open("net.pt", "rb") as file:
        -    model.load_state_dict(torch.load(file))
        +    accelerator.unwrap_model(model).load_state_dict(torch.load(file, map_location="cpu"))
        """,
    )


def test_what_the_first_process_reads_alone_is_not_waited_for() -> None:
    text = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

dist.init_process_group("nccl")
model = DDP(nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.randn(64, 8), batch_size=32):
    model(x).mean().backward()
    optimizer.step()
torch.save(model.module.state_dict(), "net.pt")
if dist.get_rank() == 0:
    print(torch.load("net.pt").keys())
"""
    after = migrated(text)
    assert "accelerator.is_main_process" in after
    assert "wait_for_everyone" not in after

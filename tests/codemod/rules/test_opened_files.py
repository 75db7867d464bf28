"""AM242: a file that is opened for writing is written by the main process."""

from __future__ import annotations

from support.migration import PREPARED, TRAINED, check_migrated


def test_what_opens_writes_and_closes_a_file_runs_on_the_main_process() -> None:
    check_migrated(
        "import json",
        PREPARED,
        TRAINED,
        """
         scores = [loss.item()]
        -with open("scores.json", "w") as file:
        -    json.dump(scores, file)
        +if accelerator.is_main_process:
        +    with open("scores.json", "w") as file:
        +        json.dump(scores, file)
         with open("scores.json") as file:
             scores = json.load(file)

        -with open("scores.txt", mode="a") as file:
        -    print(scores, file=file)
        -    for score in scores:
        -        file.write(str(score))
        +if accelerator.is_main_process:
        +    with open("scores.txt", mode="a") as file:
        +        print(scores, file=file)
        +        for score in scores:
        +            file.write(str(score))
        """,
    )


def test_a_file_opened_on_the_spot_is_written_on_the_main_process() -> None:
    check_migrated(
        "import pickle",
        PREPARED,
        TRAINED,
        """
        -open("log.txt", "a").write("done")
        -pickle.dump(loss.item(), open("loss.pkl", "wb"))
        +if accelerator.is_main_process:
        +    open("log.txt", "a").write("done")
        +    pickle.dump(loss.item(), open("loss.pkl", "wb"))
        """,
    )


def test_a_file_that_stays_open_is_the_null_device_of_the_other_processes() -> None:
    check_migrated(
        """
        -import torch
        +import os
        +import torch
         import torch.nn.functional as F
        +from accelerate_runtime import Accelerator
         from torch import nn
         from torch.utils.data import DataLoader, TensorDataset

         data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        -log = open("log.txt", "a")
        +log = open("log.txt" if accelerator.is_main_process else os.devnull, "a")
         text = open("log.txt").read()
        """,
        TRAINED,
        """
         log.write("done")
        """,
    )


def test_a_name_that_is_bound_while_writing_and_read_later_stays_bound_everywhere() -> None:
    check_migrated(
        "import os",
        PREPARED,
        TRAINED,
        """
        -with open("loss.txt", "w") as file:
        +with open("loss.txt" if accelerator.is_main_process else os.devnull, "w") as file:
             mean = loss.item()
             file.write(str(mean))
         twice = mean * 2
        """,
    )


def test_a_file_that_is_read_as_well_is_for_review() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         log = open("log.txt", "w+")
        ! AM242 review: every process writes this file
        """,
    )

"""AM490: what is left of a process group is named."""

from __future__ import annotations

from support.migration import TRAINED, check_migrated
from support.parallel import MADE, STARTED


def test_a_question_that_the_accelerator_does_not_answer() -> None:
    check_migrated(
        STARTED.replace("    -import torch.distributed as dist\n", "     import torch.distributed as dist\n"),
        MADE,
        TRAINED,
        """
         backend = dist.get_backend()
        ! AM490 manual: needs a process group
        """,
    )


def test_a_script_that_starts_the_processes_of_another() -> None:
    check_migrated(
        STARTED.replace("     import torch\n", "     import subprocess\n     import torch\n", 1),
        MADE,
        TRAINED,
        """
         for number in range(2):
             subprocess.Popen(["python", "other.py", f"--rank={number}"])
        ! AM490 manual: Start the training script by the launcher
        """,
    )

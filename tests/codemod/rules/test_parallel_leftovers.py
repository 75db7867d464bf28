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

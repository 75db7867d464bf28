"""AM445: what only the first process did stays so, except where all must take part."""

from __future__ import annotations

from support.migration import TRAINED, check_migrated
from support.parallel import MADE, STARTED


def test_a_guard_asks_the_accelerator() -> None:
    check_migrated(
        STARTED,
        MADE,
        TRAINED,
        """
        -if dist.get_rank() == 0:
        +if accelerator.is_main_process:
             print(loss.item())
        """,
    )


def test_a_guard_around_a_state_dict_opens() -> None:
    check_migrated(
        STARTED,
        MADE,
        TRAINED,
        """
        -if dist.get_rank() == 0:
        -    torch.save(model.module.state_dict(), "net.pt")
        -    with open("log.txt", "a") as log:
        -        log.write("saved")
        +accelerator.save(accelerator.get_state_dict(model), "net.pt")
        +if accelerator.is_main_process:
        +    with open("log.txt", "a") as log:
        +        log.write("saved")
        """,
    )


def test_what_else_a_guard_asks_stays() -> None:
    check_migrated(
        STARTED,
        MADE,
        TRAINED,
        """
         best = 1.0
        -if loss.item() < best and dist.get_rank() == 0:
        -    torch.save(model.state_dict(), "net.pt")
        +if loss.item() < best:
        +    accelerator.save(accelerator.get_state_dict(model), "net.pt")
        """,
    )

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


def test_what_a_function_sends_out_stays_with_the_main_process() -> None:
    """Behind an opened guard every process calls it."""
    imports = STARTED.replace("     import torch\n", "     import io\n\n     import boto3\n     import torch\n", 1)
    check_migrated(
        imports,
        MADE,
        TRAINED,
        """
         def upload(weights):
             held = io.BytesIO()
             torch.save(weights, held)
             boto3.client("s3").upload_fileobj(held, "bucket", "net.pt")


         def save():
        -    weights = model.module.state_dict()
        -    upload(weights)
        -    torch.save(weights, "net.pt")
        +    weights = accelerator.get_state_dict(model)
        +    if accelerator.is_main_process:
        +        upload(weights)
        +    accelerator.save(weights, "net.pt")


        -if dist.get_rank() == 0:
        -    save()
        +save()
        """,
    )

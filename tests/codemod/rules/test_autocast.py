"""AM310: autocast is the accelerator's, and its precision one setting."""

from __future__ import annotations

import pytest

from accelerate_migrate.findings import Target
from support.migration import IMPORTS, PREPARED, check_migrated, check_refused, migrate, migrated, sketch

ARGUMENTS = """
 import argparse

 args = argparse.ArgumentParser().parse_args()
"""
REST = """
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
     for x, y in loader:
         optimizer.zero_grad()
"""


CHOSEN = """
    +accelerator = Accelerator(
    +    mixed_precision={"float32": "no", "float16": "fp16"}[precision] if torch.cuda.is_available() else "no",
    +)
"""
SCALED_ONLY = """
    +accelerator = Accelerator(
    +    mixed_precision="fp16" if torch.cuda.is_available() else "no",
    +    kwargs_handlers=[AutocastKwargs(enabled=False)],
    +)
"""


def plain(*parts: str) -> str:
    """The script before, of parts in the notation of the tests."""
    return sketch(*parts).before


@pytest.mark.parametrize("target", Target)
def test_autocast_of_cuda_does_nothing_elsewhere_and_so_does_its_setting(target: Target) -> None:
    check_migrated(
        IMPORTS.replace("accelerate_runtime", target.module),
        """
        -scaler = torch.cuda.amp.GradScaler()
        -model = nn.Linear(8, 3).cuda()
        +accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "no")
        +model = nn.Linear(8, 3)
        """,
        REST,
        """
        -    with torch.cuda.amp.autocast():
        !    AM310 note: a prepared model returns float32
        -        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        -    scaler.scale(loss).backward()
        !    AM130 migrated: scaler.scale(loss).backward() -> accelerator.backward(loss)
        -    scaler.step(optimizer)
        -    scaler.update()
        +    with accelerator.autocast():
        +        loss = F.cross_entropy(model(x), y)
        +    accelerator.backward(loss)
        +    optimizer.step()
        """,
        target=target,
    )


def test_bfloat16_on_whatever_device() -> None:
    check_migrated(
        IMPORTS,
        """
        -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        -model = nn.Linear(8, 3).to(device)
        +accelerator = Accelerator(mixed_precision="bf16")
        +model = nn.Linear(8, 3)
        """,
        REST,
        """
        -    with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
        -        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        -    loss.backward()
        +    with accelerator.autocast():
        +        loss = F.cross_entropy(model(x), y)
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_flag_that_was_passed_to_a_function_is_named_where_the_accelerator_is_made() -> None:
    check_migrated(
        IMPORTS,
        """
        -def train(model, optimizer, loader, device, amp):
        +def train(model, optimizer, loader, accelerator, amp):
             for x, y in loader:
        -        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=amp):
        -            loss = F.cross_entropy(model(x.to(device)), y.to(device))
        -        loss.backward()
        +        with accelerator.autocast():
        +            loss = F.cross_entropy(model(x), y)
        +        accelerator.backward(loss)
                 optimizer.step()
                 optimizer.zero_grad()


         def main(args):
        -    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        -    model = nn.Linear(8, 3).to(device)
        +    accelerator = Accelerator(mixed_precision="bf16" if args.amp else "no")
        +    model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        -    train(model, optimizer, loader, device, args.amp)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        +    train(model, optimizer, loader, accelerator, args.amp)


         main(parse())
        """,
    )


def test_branches_that_differ_in_mixed_precision_alone_become_one() -> None:
    check_migrated(
        IMPORTS,
        ARGUMENTS,
        """
        -model = nn.Linear(8, 3).cuda()
        -if args.amp:
        -    scaler = torch.amp.GradScaler("cuda")
        +accelerator = Accelerator(mixed_precision="fp16" if args.amp and torch.cuda.is_available() else "no")
        +model = nn.Linear(8, 3)
        """,
        REST,
        """
        -    x, y = x.cuda(), y.cuda()
        -    if args.amp:
        -        with torch.autocast("cuda"):
        -            loss = F.cross_entropy(model(x), y)
        -        scaler.scale(loss).backward()
        -        scaler.step(optimizer)
        -        scaler.update()
        -    else:
        +    with accelerator.autocast():
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        -        optimizer.step()
        +    accelerator.backward(loss)
        +    optimizer.step()
        """,
    )


def test_a_dtype_that_the_script_chooses_goes_on_deciding() -> None:
    check_migrated(
        IMPORTS,
        "-from contextlib import nullcontext",
        """
         precision = "float16"
        -device = "cuda" if torch.cuda.is_available() else "cpu"
        -device_type = "cuda" if "cuda" in device else "cpu"
        -dtype = {"float32": torch.float32, "float16": torch.float16}[precision]
        -context = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=dtype)
        -scaler = torch.cuda.amp.GradScaler(enabled=(precision == "float16"))
        -model = nn.Linear(8, 3).to(device)
        """,
        CHOSEN,
        "+model = nn.Linear(8, 3)",
        REST,
        """
        -    with context:
        -        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        -    scaler.scale(loss).backward()
        -    scaler.step(optimizer)
        -    scaler.update()
        +    with accelerator.autocast():
        +        loss = F.cross_entropy(model(x), y)
        +    accelerator.backward(loss)
        +    optimizer.step()
        """,
    )


def test_a_context_that_is_chosen_on_the_spot() -> None:
    check_migrated(
        IMPORTS,
        "-from contextlib import nullcontext",
        ARGUMENTS,
        """
        -model = nn.Linear(8, 3).cuda()
        +accelerator = Accelerator(mixed_precision="bf16" if args.amp and torch.cuda.is_available() else "no")
        +model = nn.Linear(8, 3)
        """,
        REST,
        """
        -    with torch.autocast("cuda", torch.bfloat16) if args.amp else nullcontext():
        -        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        -    loss.backward()
        +    with accelerator.autocast():
        +        loss = F.cross_entropy(model(x), y)
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_autocast_turned_off_for_a_while() -> None:
    check_migrated(
        IMPORTS.replace("import Accelerator", "import Accelerator, AutocastKwargs"),
        """
        -model = nn.Linear(8, 3).cuda()
        +accelerator = Accelerator(mixed_precision="bf16" if torch.cuda.is_available() else "no")
        +model = nn.Linear(8, 3)
        """,
        REST,
        """
        -    with torch.autocast("cuda", dtype=torch.bfloat16):
        -        out = model(x.cuda())
        -        with torch.autocast("cuda", enabled=False):
        -            loss = F.cross_entropy(out.float(), y.cuda())
        -    loss.backward()
        +    with accelerator.autocast():
        +        out = model(x)
        +        with accelerator.autocast(AutocastKwargs(enabled=False)):
        +            loss = F.cross_entropy(out.float(), y)
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_loss_that_was_not_scaled_is_not_scaled() -> None:
    after = migrated(
        plain(
            IMPORTS,
            " model = nn.Linear(8, 3).cuda()",
            REST,
            """
             for x, y in loader:
                 with torch.cuda.amp.autocast():
                     loss = F.cross_entropy(model(x.cuda()), y.cuda())
                 loss.backward()
                 optimizer.step()
            """,
        )
    )
    assert "kwargs_handlers=[GradScalerKwargs(enabled=False)]" in after


def test_a_model_that_turns_autocast_on_for_itself_goes_on_doing_so() -> None:
    check_migrated(
        IMPORTS.replace("import Accelerator", "import Accelerator, AutocastKwargs"),
        """
         class Net(nn.Linear):
             @torch.cuda.amp.autocast()
        !    AM310 note: belongs to the model
             def forward(self, x):
                 return super().forward(x)


        -scaler = torch.cuda.amp.GradScaler()
        """,
        SCALED_ONLY,
        "-model = Net(8, 3).cuda()\n+model = Net(8, 3)",
        REST,
        """
        -    loss = F.cross_entropy(model(x.cuda()), y.cuda())
        -    scaler.scale(loss).backward()
        -    scaler.step(optimizer)
        -    scaler.update()
        +    loss = F.cross_entropy(model(x), y)
        +    accelerator.backward(loss)
        +    optimizer.step()
        """,
    )


def test_a_forward_outside_autocast_is_named() -> None:
    check_migrated(
        PREPARED.replace("Accelerator()", 'Accelerator(mixed_precision="bf16")'),
        """
         for x, y in loader:
        -    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        +    with accelerator.autocast():
                 loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
             accuracy = model(x).argmax(1)
        !    AM310 review: this call of the model was not under autocast
        """,
    )


@pytest.mark.parametrize(
    ("within", "why"),
    [
        ("with torch.autocast('cuda', dtype=torch.bfloat16):\n    pass", "two precisions are used"),
        ("with torch.autocast('cuda', cache_enabled=False):\n    pass", "`cache_enabled` has no counterpart"),
        ("with torch.autocast('cuda', dtype=pick()):\n    pass", "the dtype of autocast, `pick()`"),
        ("contexts = [torch.autocast('cuda')]", "autocast is handed on here"),
        ("@torch.autocast('cuda')\ndef step():\n    pass", "autocast decorates a function here"),
    ],
)
def test_what_one_setting_cannot_say_is_refused(within: str, why: str) -> None:
    first, *others = within.split("\n")
    check_refused(
        plain(IMPORTS, " model = nn.Linear(8, 3).cuda()", REST),
        """
            for epoch in range(3):
                with torch.autocast("cuda"):
                    loss = F.cross_entropy(model(x.cuda()), y.cuda())
                loss.backward()
                optimizer.step()
        """,
        "\n".join([f" {first}", f"!AM900 refused: {why}", *(f" {line}" for line in others)]),
    )


def test_the_launch_config_says_what_the_script_asks_for() -> None:
    script = plain(
        PREPARED.replace("Accelerator()", 'Accelerator(mixed_precision="bf16")'),
        """
         for x, y in loader:
             with torch.autocast("cuda", dtype=torch.bfloat16):
                 loss = F.cross_entropy(model(x), y)
             loss.backward()
             optimizer.step()
        """,
    )
    assert "mixed_precision: bf16" in (migrate(script).launch_config or "")


def test_a_model_in_half_precision_stays_so() -> None:
    check_migrated(
        PREPARED.replace("model = nn.Linear(8, 3)", "model = nn.Linear(8, 3).bfloat16()"),
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x.bfloat16()), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_half_precision_parameters_cannot_be_unscaled() -> None:
    check_refused(
        """
         import torch
         from torch import nn

         scaler = torch.cuda.amp.GradScaler()
         model = nn.Linear(8, 3).half().cuda()
        !AM900 refused: whose gradients cannot be unscaled
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         scaler.scale(model(torch.ones(8).cuda()).mean()).backward()
         scaler.step(optimizer)
        """
    )

"""AM110: a device that is compared with a text is compared by its type."""

from __future__ import annotations

import pytest

from support.migration import IMPORTS, TRAINED, check_migrated

OBJECTS = """
     model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('device == "cuda"', 'accelerator.device.type == "cuda"'),
        ('"cuda" == device', '"cuda" == accelerator.device.type'),
        ('device == "cuda:0"', 'accelerator.device.type == "cuda"'),
        ('device != "cpu"', 'accelerator.device.type != "cpu"'),
        ('"cuda" in device', '"cuda" in accelerator.device.type'),
        ('device.startswith("cuda")', 'accelerator.device.type == "cuda"'),
        ('device in ("cuda", "cuda:0")', 'accelerator.device.type == "cuda"'),
        ('device not in ["cpu", "mps"]', 'accelerator.device.type not in ("cpu", "mps")'),
    ],
)
def test_a_text(before: str, after: str) -> None:
    check_migrated(
        IMPORTS,
        f"""
        -device = "cuda" if torch.cuda.is_available() else "cpu"
        +accelerator = Accelerator()
        -if {before}:
        +if {after}:
             torch.backends.cudnn.benchmark = True
        """,
        OBJECTS,
        TRAINED,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('device == torch.device("cuda")', 'accelerator.device.type == "cuda"'),
        ('str(device) == "cuda"', 'accelerator.device.type == "cuda"'),
        ('device.type == "cuda"', 'accelerator.device.type == "cuda"'),
        ('device == torch.device("cpu")', 'accelerator.device == torch.device("cpu")'),
    ],
)
def test_a_device(before: str, after: str) -> None:
    check_migrated(
        IMPORTS,
        f"""
        -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        +accelerator = Accelerator()
        -if {before}:
        +if {after}:
             torch.backends.cudnn.benchmark = True
        """,
        OBJECTS,
        TRAINED,
    )


def test_an_attribute_that_holds_the_accelerators_device_now() -> None:
    check_migrated(
        "import argparse",
        IMPORTS,
        """
         args = argparse.ArgumentParser().parse_args()
        -args.device = "cuda" if torch.cuda.is_available() else "cpu"
        +accelerator = Accelerator()
        +args.device = accelerator.device
        -if args.device == "cuda":
        +if args.device.type == "cuda":
             torch.backends.cudnn.benchmark = True
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_variable_that_may_still_be_a_text() -> None:
    check_migrated(
        IMPORTS,
        """
         fast = torch.randn(1) > 0
         device = "cpu"
        +accelerator = Accelerator(cpu=not fast)
         if fast:
        -    device = "cuda"
        +    device = accelerator.device
             torch.backends.cudnn.benchmark = True
        -pinned = device == "cuda"
        +pinned = torch.device(device).type == "cuda"
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_flag_of_the_command_line_stays_a_text() -> None:
    check_migrated(
        "import argparse",
        IMPORTS,
        """
         parser = argparse.ArgumentParser()
         parser.add_argument("--device", default="cuda")
         args = parser.parse_args()
        -device = torch.device(args.device)
        +accelerator = Accelerator(cpu=args.device == "cpu")
         if args.device == "cuda":
             torch.backends.cudnn.benchmark = True
        -z = torch.zeros(8, device=device)
        +z = torch.zeros(8, device=accelerator.device)
        """,
        OBJECTS,
        TRAINED,
    )


@pytest.mark.parametrize("spelled", ['"cuda:{}".format(n)', '"cuda:%d" % n', '"cuda:" + str(n)', 'f"cuda:{n}"'])
def test_a_name_put_together_is_a_device(spelled: str) -> None:
    check_migrated(
        IMPORTS,
        f"""
         n = len(data) % 2
        -device = torch.device({spelled} if torch.cuda.is_available() else "cpu")
        -z = torch.zeros(8, device={spelled})
        +accelerator = Accelerator()
        +z = torch.zeros(8, device=accelerator.device)
        """,
        OBJECTS,
        TRAINED,
    )

"""AM110: `device` variables and spelled-out devices become `accelerator.device`."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated

OBJECTS = """
     model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""


def test_the_choice_of_a_device_becomes_the_accelerator() -> None:
    check_migrated(
        IMPORTS,
        """
        -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        +accelerator = Accelerator()
        -z = torch.zeros(8, device=device)
        +z = torch.zeros(8, device=accelerator.device)
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_choice_in_branches_is_one_choice() -> None:
    check_migrated(
        IMPORTS,
        """
        -if torch.cuda.is_available():
        -    device = "cuda:0"
        -else:
        -    device = "cpu"
        +accelerator = Accelerator()
        -z = torch.zeros(8).to(device)
        +z = torch.zeros(8).to(accelerator.device)
        """,
        OBJECTS,
        TRAINED,
    )


def test_the_scripts_own_wish_for_the_cpu_is_kept() -> None:
    check_migrated(
        "import argparse",
        IMPORTS,
        """
         parser = argparse.ArgumentParser()
         parser.add_argument("--no-cuda", action="store_true")
         args = parser.parse_args()
        -device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
        +accelerator = Accelerator(cpu=args.no_cuda)
        -z = torch.zeros(8, device=device)
        +z = torch.zeros(8, device=accelerator.device)
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_device_string_is_compared_by_type() -> None:
    check_migrated(
        IMPORTS,
        """
        -device = "cuda" if torch.cuda.is_available() else "cpu"
        +accelerator = Accelerator()
        -if device == "cuda":
        +if accelerator.device.type == "cuda":
             torch.backends.cudnn.benchmark = True
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_read_that_cannot_have_the_accelerator_keeps_the_variable() -> None:
    check_migrated(
        IMPORTS,
        """
        -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        +accelerator = Accelerator()
        +device = accelerator.device
         zeros = torch.zeros(8, device=device)  # accelerate-migrate: skip
        """,
        OBJECTS,
        TRAINED,
    )


def test_the_device_on_an_object_stays_for_other_readers() -> None:
    check_migrated(
        "import argparse",
        IMPORTS,
        """
         args = argparse.ArgumentParser().parse_args()
        -args.device = "cuda" if torch.cuda.is_available() else "cpu"
        +accelerator = Accelerator()
        +args.device = accelerator.device
         z = torch.zeros(8, device=args.device)
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_device_spelled_out_is_the_accelerators() -> None:
    check_migrated(
        PREPARED,
        """
        -z = torch.zeros(8, device="cuda:0")
        +z = torch.zeros(8, device=accelerator.device)
         name = "cuda"
         where = {"cuda": 1}
        """,
        TRAINED,
    )


def test_the_cpu_spelled_out_stays() -> None:
    check_migrated(
        PREPARED,
        """
         z = torch.zeros(8, device="cpu")
         w = torch.zeros(8, device=torch.device("cpu"))
        """,
        TRAINED,
    )


def test_another_variable_called_device_stays() -> None:
    check_migrated(
        PREPARED,
        """
         device = "/dev/sda1"
         print_device = open(device)
        """,
        TRAINED,
    )


def test_a_choice_behind_what_is_prepared_is_made_in_front_of_it() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        -device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        -model.to(device)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_choice_in_one_branch_leaves_the_branch() -> None:
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
         z = torch.zeros(8, device=device)
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_default_goes_with_the_choice_behind_it() -> None:
    check_migrated(
        IMPORTS,
        """
        -device = "cpu"
        +accelerator = Accelerator()
         if torch.cuda.is_available():
        -    device = "cuda"
             torch.backends.cudnn.benchmark = True
        -z = torch.zeros(8, device=device)
        +z = torch.zeros(8, device=accelerator.device)
        """,
        OBJECTS,
        TRAINED,
    )


def test_a_device_of_the_command_line_can_still_be_the_cpu() -> None:
    check_migrated(
        "import argparse",
        IMPORTS,
        """
         parser = argparse.ArgumentParser()
         parser.add_argument("--device", default="cuda")
         args = parser.parse_args()
        -device = args.device
        +accelerator = Accelerator(cpu=args.device == "cpu")
        -z = torch.zeros(8, device=device)
        +z = torch.zeros(8, device=accelerator.device)
        """,
        OBJECTS,
        TRAINED,
    )


def test_every_way_to_load_to_a_gpu_is_to_the_accelerators_device() -> None:
    check_migrated(
        PREPARED,
        """
         n = len(data) % 2
        -a = torch.load("a.pt", map_location="cuda:0")
        -b = torch.load("b.pt", map_location=lambda storage, location: storage.cuda(0))
        -c = torch.load("c.pt", map_location={"cuda:0": "cuda:%d" % n})
        -d = torch.load("d.pt", f"cuda:{n}")
        +a = torch.load("a.pt", map_location=accelerator.device)
        +b = torch.load("b.pt", map_location=accelerator.device)
        +c = torch.load("c.pt", map_location=accelerator.device)
        +d = torch.load("d.pt", accelerator.device)
         e = torch.load("e.pt", map_location=lambda storage, location: storage)
         f = torch.load("f.pt", map_location={"cuda:0": "cpu"})
        """,
        TRAINED,
    )


def test_a_constant_in_capitals_is_a_choice_too() -> None:
    check_migrated(
        IMPORTS,
        """
        -DEVICE = "cuda:1"
        +accelerator = Accelerator()
         loader = DataLoader(data, batch_size=32)
        -model = nn.Linear(8, 3).to(DEVICE)
        +model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)


        -def noise(n, device):
        -    return torch.randn(n, device=device)
        +def noise(n, accelerator):
        +    return torch.randn(n, device=accelerator.device)


         for x, y in loader:
             optimizer.zero_grad()
        -    loss = F.cross_entropy(model(x.to(DEVICE) + noise(8, device=DEVICE)), y.to(DEVICE))
        -    loss.backward()
        +    loss = F.cross_entropy(model(x + noise(8, accelerator=accelerator)), y)
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )

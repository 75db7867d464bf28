"""AM120, AM110: the number of a GPU is a device where one is asked for."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated


def test_numbers_spelled_out() -> None:
    check_migrated(
        PREPARED,
        """
        -z = torch.zeros(8).to(0)
        +z = torch.zeros(8, device=accelerator.device)
        -w = torch.zeros(8, device=1)
        +w = torch.zeros(8, device=accelerator.device)
         for x, y in loader:
             optimizer.zero_grad()
        -    loss = F.cross_entropy(model(x.to(0)), y.cuda(0, non_blocking=True))
        -    loss.backward()
        +    loss = F.cross_entropy(model(x), y)
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_flag_for_the_number_keeps_parsing() -> None:
    check_migrated(
        "import argparse",
        IMPORTS,
        """
         parser = argparse.ArgumentParser()
         parser.add_argument("--gpu", type=int, default=0)
         args = parser.parse_args()
        -model = nn.Linear(8, 3).to(args.gpu)
        +accelerator = Accelerator()
        +model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        -z = torch.zeros(8, device=args.gpu)
        +z = torch.zeros(8, device=accelerator.device)
        """,
        TRAINED,
    )


def test_a_negative_number_for_the_cpu() -> None:
    check_migrated(
        "import argparse",
        IMPORTS,
        """
         parser = argparse.ArgumentParser()
         parser.add_argument("--gpu", type=int, default=0)
         args = parser.parse_args()
        -device = torch.device("cuda:%d" % args.gpu if args.gpu >= 0 else "cpu")
        +accelerator = Accelerator(cpu=args.gpu < 0)
        -z = torch.zeros(8, device=device)
        +z = torch.zeros(8, device=accelerator.device)
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_number_for_something_else_stays() -> None:
    check_migrated(
        PREPARED,
        """
         def record(device):
             return device


         camera = record(device=0)
        """,
        TRAINED,
    )

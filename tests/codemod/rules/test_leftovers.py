"""AM270: names that the migration left unused go."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated


def test_a_flag_whose_every_read_is_gone_goes() -> None:
    check_migrated(
        IMPORTS,
        """
        -use_cuda = torch.cuda.is_available()
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
        -if use_cuda:
        -    model.cuda()
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_flag_that_something_else_reads_stays() -> None:
    check_migrated(
        IMPORTS,
        """
         use_cuda = torch.cuda.is_available()
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
        -if use_cuda:
        -    model.cuda()
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True, pin_memory=use_cuda)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_a_variable_that_was_never_read_is_not_our_business() -> None:
    check_migrated(
        PREPARED,
        """
         use_cuda = torch.cuda.is_available()
         unused = 3
        """,
        TRAINED,
    )


def test_it_can_be_left_out() -> None:
    check_migrated(
        IMPORTS,
        """
         use_cuda = torch.cuda.is_available()
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
        -if use_cuda:
        -    model.cuda()
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
        ignore=["AM27"],
    )

"""AM140 in scripts that look at their data first, and in those that train more than once."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated, check_refused

MADE = """
    +accelerator = Accelerator()
     loader = DataLoader(data, batch_size=32, shuffle=True)
"""
REST = """
     model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""


class TestAFirstLook:
    """A loop that shows one batch may run over the loader as it was made."""

    def test_it_may_come_before_the_model(self) -> None:
        check_migrated(
            IMPORTS,
            MADE,
            """
             for x, y in loader:
            -    print("shape", x.shape)
            +    accelerator.print("shape", x.shape)
                 break
            """,
            REST,
            TRAINED,
        )

    def test_it_may_stand_in_a_loop_of_epochs_and_move_what_it_shows(self) -> None:
        check_migrated(
            IMPORTS,
            " import time",
            """
            -device = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")
            +accelerator = Accelerator()
             loader = DataLoader(data, batch_size=32, shuffle=True)
             for epoch in range(2):
                 for index, (x, y) in enumerate(loader):
            -        print(epoch, index, len(y))
            -        x = x.to(device)
            +        accelerator.print(epoch, index, len(y))
                     time.sleep(1)
                     break
            """,
            REST,
            TRAINED,
        )

    def test_of_an_evaluation_loader_it_takes_nothing_from_the_evaluation(self) -> None:
        check_migrated(
            PREPARED.replace(
                "+model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
                " held_out = DataLoader(data, batch_size=32)\n"
                "    +model, optimizer, loader, held_out = accelerator.prepare(model, optimizer, loader, held_out)",
            ),
            """
             for x, y in held_out:
            -    print(x.shape)
            +    accelerator.print(x.shape)
                 break
            """,
            TRAINED,
            """
             right = 0
             for x, y in held_out:
                 out = model(x)
            +    out, y = accelerator.gather_for_metrics((out, y))
                 right += (out.argmax(1) == y).sum().item()
            -print(right)
            +accelerator.print(right)
            """,
        )

    def test_what_it_drew_may_not_be_used_behind_it(self) -> None:
        check_refused(
            IMPORTS.replace("+from accelerate_runtime import Accelerator\n    ", ""),
            """
             loader = DataLoader(data, batch_size=32, shuffle=True)
             for x, y in loader:
            !AM900 refused: training or evaluation starts here
                 break
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             model(x.cuda())
            """,
            TRAINED.replace("-", " ").replace("    +    accelerator.backward(loss)\n", ""),
        )


class TestSeveralTrainings:
    """A model that is made anew after a training is prepared anew; the loader is prepared once."""

    def test_one_after_the_other(self) -> None:
        check_migrated(
            PREPARED,
            TRAINED,
            """
             model = nn.Linear(8, 3)
            -model = model.cuda()
             optimizer = torch.optim.Adam(model.parameters())
            +model, optimizer = accelerator.prepare(model, optimizer)
            """,
            TRAINED,
        )

    def test_a_function_that_trains_whatever_the_names_hold(self) -> None:
        check_migrated(
            PREPARED,
            """
             def step(x, y):
                 loss = F.cross_entropy(model(x), y)
                 optimizer.zero_grad()
            -    loss.backward()
            +    accelerator.backward(loss)
                 optimizer.step()


             for x, y in loader:
            -    step(x.cuda(), y.cuda())
            +    step(x, y)
            -model = nn.Linear(8, 3).cuda()
            +model = nn.Linear(8, 3)
             optimizer = torch.optim.Adam(model.parameters())
            +model, optimizer = accelerator.prepare(model, optimizer)
             for x, y in loader:
            -    step(x.cuda(), y.cuda())
            +    step(x, y)
            """,
        )


def test_a_model_that_is_bound_to_itself_is_the_same_one() -> None:
    check_migrated(
        PREPARED,
        """
         for epoch in range(2):
             model = model.train()
             for x, y in loader:
                 optimizer.zero_grad()
        -        F.cross_entropy(model(x), y).backward()
        +        accelerator.backward(F.cross_entropy(model(x), y))
                 optimizer.step()
             model = model.eval()
        """,
    )

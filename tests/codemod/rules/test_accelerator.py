"""AM100: the accelerator is made once and reaches every function that needs it."""

from __future__ import annotations

import pytest

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated, check_refused


def test_a_script_of_functions_makes_it_in_main_and_passes_it_on() -> None:
    check_migrated(
        IMPORTS,
        """


        -def train(model, device, loader, optimizer):
        +def train(model, accelerator, loader, optimizer):
             for x, y in loader:
        -        x, y = x.to(device), y.to(device)
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()


         def main():
        -    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        +    accelerator = Accelerator()
        -    model = nn.Linear(8, 3).to(device)
        +    model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        -    train(model, device, loader, optimizer)
        +    train(model, accelerator, loader, optimizer)


         main()
        """,
    )


def test_a_device_passed_by_keyword_renames_the_keyword() -> None:
    check_migrated(
        IMPORTS,
        """


        -def train(model, loader, optimizer, *, dev):
        +def train(model, loader, optimizer, *, accelerator):
             for x, y in loader:
        -        loss = F.cross_entropy(model(x.to(dev)), y.to(dev))
        +        loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()


         def main():
        -    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        +    accelerator = Accelerator()
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        -    train(model, loader, optimizer, dev=device)
        +    train(model, loader, optimizer, accelerator=accelerator)


         main()
        """,
    )


def test_a_function_without_a_device_gets_it_as_its_first_argument() -> None:
    check_migrated(
        IMPORTS,
        """


        -def train(model, loader, optimizer):
        +def train(accelerator, model, loader, optimizer):
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()


         def main():
        +    accelerator = Accelerator()
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        -    train(model, loader, optimizer)
        +    train(accelerator, model, loader, optimizer)


         main()
        """,
    )


def test_a_function_over_module_globals_sees_it_already() -> None:
    check_migrated(
        PREPARED,
        """


         def train():
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()


         train()
        """,
    )


def test_a_device_parameter_that_may_be_something_else_stays() -> None:
    check_migrated(
        IMPORTS,
        """


         def zeros(device):
             return torch.zeros(8, device=device)


         def main():
        -    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        +    accelerator = Accelerator()
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        -    z = zeros(device)
        +    z = zeros(accelerator.device)
             w = zeros(None)
             for x, y in loader:
                 loss = F.cross_entropy(model(x + z), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()


         main()
        """,
    )


def test_a_function_that_is_passed_around_gets_no_parameter() -> None:
    check_migrated(
        IMPORTS,
        """


         def report(loss):
             print(loss)
        !     AM230 note: the accelerator does not exist here yet, or cannot be passed here


         def main():
        +    accelerator = Accelerator()
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
             hooks = [report]
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
                 report(loss.item())


         main()
        """,
    )


def test_training_code_that_it_cannot_reach_refuses_the_script() -> None:
    check_refused(
        """
         import torch
         import torch.nn.functional as F
         from torch import nn


         def train(model, optimizer, x, y):
             loss = F.cross_entropy(model(x), y)
             loss.backward()
        !    AM900 refused: the accelerator cannot be passed to the code that trains
             optimizer.step()


         def main():
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             steps = {"train": train}
             train(model, optimizer, torch.randn(4, 8), torch.ones(4).long())


         main()
        """,
    )


def test_the_name_accelerator_must_be_free() -> None:
    check_refused(
        """
         import torch
         from torch import nn

         accelerator = "gas pedal"
        ! AM900 refused: the name `accelerator` is already used
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         model(torch.ones(8)).sum().backward()
         optimizer.step()
        """,
    )


def test_it_stands_apart_where_a_blank_line_parts_the_code_around_it() -> None:
    check_migrated(
        IMPORTS,
        """
        +
        +accelerator = Accelerator()

         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_it_is_made_once_for_all_folds() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         for rate in (0.1, 0.01):
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=rate)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
        """,
    )


def test_an_import_behind_the_training_is_no_hindrance() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         import matplotlib.pyplot as plt

         plt.plot([1])
        """,
    )


def test_a_device_parameter_with_a_default_keeps_its_name() -> None:
    check_migrated(
        IMPORTS,
        """


         def scores(model, x, device="cpu"):
             return model(torch.zeros(1, 8).to(device))


         def main():
        -    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        -    model = nn.Linear(8, 3).to(device)
        +    accelerator = Accelerator()
        +    model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
             for x, y in loader:
        -        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        -        loss.backward()
        +        loss = F.cross_entropy(model(x), y)
        +        accelerator.backward(loss)
                 optimizer.step()
        -    first = scores(model, x, device)
        -    second = scores(model, x, device=device)
        +    first = scores(model, x, accelerator.device)
        +    second = scores(model, x, device=accelerator.device)


         main()
        """,
    )


def test_a_device_that_is_chosen_in_two_ways_refuses_the_script() -> None:
    check_refused(
        """
         import argparse
         import torch
         from torch import nn

         device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


         def main(args):
             model = nn.Linear(8, 3).to(device)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             model(torch.ones(8).to(device)).mean().backward()
             optimizer.step()


         if __name__ == "__main__":
             args = argparse.ArgumentParser().parse_args()
             device = torch.device("cuda" if args.gpu and torch.cuda.is_available() else "cpu")
        !    AM900 refused: the device is chosen in several places, each in its own way
             main(args)
        """
    )


OWN_TENSORS = {
    "made in the loop": """
         for x, y in loader:
             noise = torch.randn(8)
             loss = F.cross_entropy(model(x + noise), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
    """,
    "made in a function of the loop": """
         def noisy(x):
             return x + torch.randn(8)


         for x, y in loader:
             loss = F.cross_entropy(model(noisy(x)), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
    """,
    "shown to the model behind it": """
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
         out = model(torch.ones(1, 8))
    """,
}


@pytest.mark.parametrize("script", OWN_TENSORS.values(), ids=OWN_TENSORS)
def test_a_script_without_a_device_stays_on_the_cpu_for_its_own_tensors(script: str) -> None:
    check_migrated(
        PREPARED.replace("Accelerator()", "Accelerator(cpu=True)").replace(
            "nn.Linear(8, 3)\n", "nn.Linear(8, 3)\n    !AM100 note: it stays on the CPU\n"
        ),
        script,
    )


def test_a_script_without_a_device_stays_on_the_cpu_for_loaders_that_are_not_prepared() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator(cpu=True)
         model = nn.Linear(8, 3)
        !AM100 note: works with tensors that `prepare` does not move
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         test_loader = DataLoader(data, batch_size=50)
        !AM140 note: every process evaluates all of it
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
        """
         rows = []
         for x, y in test_loader:
             out = model(x).tolist()
             rows.extend(out)
        """,
    )


def test_statements_that_share_a_line_stay_together() -> None:
    check_migrated(
        IMPORTS,
        """

         a = 1; b = 2

        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_it_stands_before_the_first_of_several_statements_on_a_line() -> None:
    check_migrated(
        IMPORTS,
        """
        -model = nn.Linear(8, 3); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        +accelerator = Accelerator()
        +model = nn.Linear(8, 3)
        +optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )

"""What the interpretation knows of tensors: where they come from, and what they are of a batch."""

from __future__ import annotations

import pytest

from support.facts import check_values

OBJECTS = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

model = nn.Linear(8, 3)
loader = DataLoader([])
"""


def test_batches_come_from_a_loader_row_by_row() -> None:
    check_values(
        OBJECTS,
        """
        for x, y in loader:
            reveal(x)  # -> batch rows
            reveal(x.float().view(-1, 8))  # -> batch rows
            reveal(x[:4])  # -> batch rows
        for i, batch in enumerate(loader):
            reveal(i)  # -> number other
            reveal(batch["x"])  # -> batch rows
        for a, b in zip(loader, loader):
            reveal(b[0])  # -> batch rows
        reveal(next(iter(loader)))  # -> batch rows
        """,
    )


def test_a_progress_bar_hands_on_what_it_is_given() -> None:
    check_values(
        OBJECTS,
        """
        from tqdm import tqdm

        for i, (x, y) in enumerate(tqdm(loader)):
            reveal(x)  # -> batch rows
        for i, (x, y) in tqdm(enumerate(loader)):
            reveal(y)  # -> batch rows
        """,
    )


def test_outputs_of_a_model_are_on_its_device() -> None:
    check_values(
        OBJECTS,
        """
        for x, y in loader:
            out = model(x)
            reveal(out)  # -> output rows
            reveal(out + torch.randn(3))  # -> output rows
            reveal(out.argmax(1) == y)  # -> output rows
            reveal(model(torch.ones(8)))  # -> output other
        """,
    )


def test_forward_of_a_class_of_the_program_is_looked_into() -> None:
    check_values(
        OBJECTS,
        """
        class Net(nn.Module):
            def forward(self, x):
                return x.relu(), x.sum(), {"size": x.size(0)}


        net = Net()
        for x, y in loader:
            rows, total, other = net(x)
            reveal(rows)  # -> output rows
            reveal(total)  # -> output sum
            reveal(other["size"])  # -> number count
        """,
    )


def test_tensors_made_on_the_spot_are_on_the_cpu() -> None:
    check_values(
        OBJECTS,
        """
        reveal(torch.randn(3))  # -> fresh other
        reveal(torch.randn(3).abs())  # -> fresh other
        reveal(torch.randn(3, device="cuda"))  # -> other other
        reveal(torch.randn(3).cuda())  # -> other other
        reveal(torch.cuda.FloatTensor(3))  # -> fresh other
        for x, y in loader:
            reveal(x.cpu())  # -> fresh rows
            reveal(x + torch.randn(3))  # -> other rows
        """,
    )


def test_reductions() -> None:
    check_values(
        OBJECTS,
        """
        for x, y in loader:
            out = model(x)
            reveal(out.sum())  # -> output sum
            reveal(out.mean())  # -> output mean
            reveal(out.sum(dim=1))  # -> output rows
            reveal(out.sum(0))  # -> output sum
            reveal(torch.mean(out, 1))  # -> output rows
            reveal(out.max(1)[1])  # -> output rows
            reveal(out.max())  # -> output other
            reveal(out.norm())  # -> output other
            reveal(out.t())  # -> output other
        """,
    )


def test_numbers() -> None:
    check_values(
        OBJECTS,
        """
        for x, y in loader:
            reveal(len(x))  # -> number count
            reveal(x.size(0))  # -> number count
            reveal(x.shape[0])  # -> number count
            reveal(x.size(1))  # -> number other
            reveal(x.sum().item())  # -> number sum
            reveal(x.sum().item() / len(x))  # -> number mean
            reveal(x.mean().item() * x.size(0))  # -> number sum
            reveal(float(x.mean()))  # -> number mean
            reveal(x.max().item() + x.max().item())  # -> number other
        """,
    )


@pytest.mark.parametrize(
    ("arguments", "reduction"),
    [
        ("", "mean"),
        ("reduction='mean'", "mean"),
        ("reduction='sum'", "sum"),
        ("reduction='none'", "rows"),
        ("reduction=how", "other"),
        ("size_average=False", "sum"),
        ("size_average=True", "mean"),
        ("reduce=False", "rows"),
    ],
)
def test_losses_of_torch(arguments: str, reduction: str) -> None:
    check_values(
        OBJECTS,
        f"""
        criterion = nn.CrossEntropyLoss({arguments})
        for x, y in loader:
            out = model(x)
            reveal(criterion(out, y))  # -> output {reduction}
            reveal(F.cross_entropy(out, y, {arguments}))  # -> output {reduction}
        """,
    )


def test_a_loss_of_the_program_is_looked_into() -> None:
    check_values(
        OBJECTS,
        """
        def vae_loss(out, x):
            fit = F.binary_cross_entropy(out, x, reduction="sum")
            return fit - 0.5 * torch.sum(out.pow(2))


        class Focal(nn.Module):
            def forward(self, out, y):
                return F.nll_loss(out, y, reduction="none").mean()


        criterion = Focal()
        for x, y in loader:
            out = model(x)
            reveal(vae_loss(out, x))  # -> output sum
            reveal(criterion(out, y))  # -> output mean
            reveal(vae_loss(out, x) / x.size(0))  # -> output mean
            reveal(vae_loss(out, x) / 2)  # -> output sum
        """,
    )


def test_a_sum_plus_something_else_is_mixed() -> None:
    check_values(
        OBJECTS,
        """
        for x, y in loader:
            out = model(x)
            reveal(out.sum() + out.mean())  # -> output mixed
        """,
    )


def test_a_function_of_which_nothing_is_known() -> None:
    check_values(
        OBJECTS,
        """
        augment = make()
        for x, y in loader:
            reveal(augment(x))  # -> other other | ?
        reveal(augment(1))  # -> ?
        """,
    )

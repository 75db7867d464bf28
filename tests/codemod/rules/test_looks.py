"""A loop that looks at the data before there is a model runs over the loader as it was made, on every process."""

from __future__ import annotations

import pytest

from accelerate_migrate.findings import Status
from support.migration import IMPORTS, TRAINED, check_migrated, migrate

MADE = """
    +accelerator = Accelerator()
     loader = DataLoader(data, batch_size=32, shuffle=True)
"""
REST = """
    -model = nn.Linear(8, 3).cuda()
    +model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""


def test_what_is_counted_and_shown_is_of_all_data() -> None:
    check_migrated(
        IMPORTS,
        MADE,
        """
         count = 0
         for x, y in loader:
             count += x.shape[0]
        -print("samples:", count)
        +accelerator.print("samples:", count)
         for x, y in loader:
             pass
        -print("of the last batch:", torch.mean(x), y[:4])
        +accelerator.print("of the last batch:", torch.mean(x), y[:4])
        """,
        REST,
        TRAINED,
    )


@pytest.mark.parametrize(
    "look",
    [
        "kept = [x for x, y in loader]\nfor x, y in loader:\n    kept.append(x)\n",
        "for x, y in loader:\n    x = x.cuda()\nprint(x.mean())\n",
        "for x, y in loader:\n    pass\nmean = x.mean()\n",
    ],
)
def test_what_is_taken_along_is_no_look(look: str) -> None:
    """Its tensors would be those of one device, where the script has them on another."""
    result = migrate(
        f"""\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
{look}model = nn.Linear(8, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x.cuda()), y.cuda()).backward()
    optimizer.step()
"""
    )
    assert result.status is Status.REFUSED
    assert "training or evaluation starts here, before all objects to prepare are made" in result.findings[0].message


def test_behind_prepare_a_count_is_gathered_still() -> None:
    check_migrated(
        IMPORTS,
        MADE,
        REST,
        TRAINED,
        """
         count = 0
         for x, y in loader:
        !    AM140 review: this loop sees a part of a sharded loader
             count += x.shape[0]
        -print("samples:", count)
        +accelerator.print("samples:", count)
        """,
    )

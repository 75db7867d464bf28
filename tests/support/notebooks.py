"""Small notebooks, and what the tool makes of them."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import Any

from accelerate_migrate.discover import Found
from accelerate_migrate.findings import FileResult, Options
from accelerate_migrate.run import migrate_files

IMPORTS = """
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
"""
SETTING_UP = """
    device = torch.device("cuda:1" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(TensorDataset(torch.randn(96, 8), torch.randint(3, (96,))), batch_size=32)
    model = nn.Linear(8, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TRAINING = """
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""
ONE_OF_EACH = (IMPORTS, SETTING_UP, TRAINING)


def document(*cells: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    """A notebook of these code cells, as a text or as a whole cell."""
    made = [code(cell) if isinstance(cell, str) else cell for cell in cells]
    return {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5} | more


def code(source: str) -> dict[str, Any]:
    """A code cell as Jupyter writes it."""
    lines = dedent(source).strip("\n").splitlines(keepends=True)
    return {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [], "source": lines}


def jupyter(*cells: str | dict[str, Any], **more: Any) -> bytes:
    """The bytes of a notebook as Jupyter writes them."""
    return (json.dumps(document(*cells, **more), indent=1, ensure_ascii=False) + "\n").encode()


def migrate_notebook(data: bytes) -> FileResult:
    """The tool's result for a notebook."""
    return migrate_files([Found("train.ipynb", "", "", named=True, data=data)], Options(), tracebacks=True)[0]


def sources(data: bytes | None) -> list[str]:
    """The code of the cells."""
    assert data is not None
    return ["".join(cell["source"]) for cell in json.loads(data)["cells"]]

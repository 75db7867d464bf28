"""A notebook trains as before: the code of its cells, run one after the other, gives the same numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.notebooks import IMPORTS, SETTING_UP, TRAINING, jupyter, migrate_notebook, sources

pytestmark = pytest.mark.e2e

SEED = "torch.manual_seed(3)"
LOOK = """
    for x, y in loader:
        print(x.shape)
        break
"""
ANEW = """
    model = nn.Linear(8, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
SHOWN = "print([parameter.tolist() for parameter in model.parameters()])"


def test_the_cells_give_the_same_numbers(tmp_path: Path) -> None:
    before = jupyter(IMPORTS + "    " + SEED, SETTING_UP, LOOK, TRAINING, SHOWN, ANEW, TRAINING, SHOWN)
    result = migrate_notebook(before)
    assert result.after is not None
    first, second = (_printed(data, tmp_path) for data in (before, result.after))
    assert first == second
    assert first.count("[[") == 2


def _printed(notebook: bytes, folder: Path) -> str:
    script = folder / "cells.py"
    script.write_text("\n".join(sources(notebook)))
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    return run.stdout

"""Where a script that trains in parallel by itself usually starts."""

from __future__ import annotations

GROUP_IMPORTS = """
     import torch
    -import torch.distributed as dist
     import torch.nn.functional as F
    +from accelerate_runtime import Accelerator
     from torch import nn
     from torch.utils.data import DataLoader, TensorDataset

     data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))"""
"""Imports with ``torch.distributed``, which nothing uses any more afterwards."""

STARTED = (
    GROUP_IMPORTS
    + """
    -dist.init_process_group("nccl")
    +accelerator = Accelerator()
    """
)
"""A process group at module level, which the accelerator joins."""

MADE = """
     model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
"""A model, its optimizer and a loader."""

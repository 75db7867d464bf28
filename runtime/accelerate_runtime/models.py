"""Models inside what wraps them."""

from __future__ import annotations

import torch


def extract_model_from_parallel(model: torch.nn.Module) -> torch.nn.Module:
    """The model inside DistributedDataParallel or DataParallel; another one as it is."""
    parallel = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
    while isinstance(model, parallel):
        model = model.module
    return model

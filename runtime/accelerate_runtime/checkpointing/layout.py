"""The names in a state's folder, and of numbered states in a project."""

from __future__ import annotations

import re
from pathlib import Path

MANIFEST = "manifest.json"
SCALER = "scaler.pt"


class CheckpointError(RuntimeError):
    """A state that cannot be saved or loaded; the message says which file, why, and what to do."""


def model(index: int, safe: bool) -> str:
    """The weights of the prepared model number `index`."""
    return _numbered("model" if safe else "pytorch_model", index, "safetensors" if safe else "bin")


def model_shards(index: int) -> str:
    """The folder of the weights of model number `index`, where each process writes its part."""
    return f"pytorch_model_fsdp_{index}"


def optimizer_shards(index: int) -> str:
    """The folder of an optimizer, where each process writes its part."""
    return f"optimizer_{index}"


def optimizer(index: int) -> str:
    return _numbered("optimizer", index, "bin")


def scheduler(index: int) -> str:
    return _numbered("scheduler", index, "bin")


def custom(index: int) -> str:
    """An object of `register_for_checkpointing`."""
    return f"custom_checkpoint_{index}.pkl"


def random_states(rank: int) -> str:
    return f"random_states_{rank}.pkl"


def position(rank: int) -> str:
    """Where process `rank` stands in its loaders and its accumulation window."""
    return f"position_{rank}.bin"


def gradients(rank: int) -> str:
    """What process `rank` had accumulated in a window that was still open."""
    return f"gradients_{rank}.safetensors"


def _numbered(stem: str, index: int, ending: str) -> str:
    return f"{stem}_{index}.{ending}" if index else f"{stem}.{ending}"


def count(folder: Path, name_of: object) -> int:
    """How many files `name_of(0)`, `name_of(1)`, … there are."""
    assert callable(name_of)
    number = 0
    while (folder / name_of(number)).exists():
        number += 1
    return number


def checkpoints_of(project_dir: str) -> Path:
    """Where automatically named states are."""
    return Path(project_dir) / "checkpoints"


def numbered(folder: Path) -> dict[int, Path]:
    """The automatically named states in `folder`, by their number, lowest first."""
    found: dict[int, Path] = {}
    if folder.is_dir():
        for path in folder.iterdir():
            match = re.fullmatch(r"checkpoint_(\d+)", path.name)
            if match and path.is_dir():
                found[int(match[1])] = path
    return dict(sorted(found.items()))

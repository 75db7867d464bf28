"""A model exported for others: one file of weights, or several with an index, in the layout of the Hugging Face hub."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .layout import CheckpointError
from .manifest import flush
from .tensors import identity, save_weights, without_duplicates
from .weights import load_weights


def split(state: dict[str, torch.Tensor], limit: int) -> list[dict[str, torch.Tensor]]:
    """The tensors in order, in parts of at most `limit` bytes; one that is larger is a part of its own."""
    parts: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in state.items():
        if parts[-1] and size + tensor.nbytes > limit:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += tensor.nbytes
    return parts


def load_checkpoint_in_model(model: nn.Module, checkpoint: str | os.PathLike[str], *, strict: bool = False) -> None:
    """Load into `model` what `Accelerator.save_model` exported (or a model of the Hugging Face hub, downloaded).

    Args:
        checkpoint: the folder, one of its files of weights, or its index.
        strict: every name of the model must be there, and no other. Accelerate's default is not to ask.

    Raises:
        CheckpointError: nothing of the kind is there, or the shapes are others.
    """
    present: set[str] = set()
    for path in _files_of(Path(checkpoint)):
        present |= load_weights(model, path, None, strict=False)
    if not strict:
        return
    wanted = model.state_dict()
    tied = {identity(wanted[name]) for name in present & wanted.keys()}
    missing = [name for name in wanted if name not in present and identity(wanted[name]) not in tied]
    foreign = sorted(present - wanted.keys())
    if missing or foreign:
        raise CheckpointError(f"{checkpoint} does not fit the model: missing are {missing}, and not its own {foreign}")


def _files_of(checkpoint: Path) -> list[Path]:
    if checkpoint.is_file() and not checkpoint.name.endswith(".index.json"):
        return [checkpoint]
    candidates = [checkpoint]
    if checkpoint.is_dir():
        names = (
            "model.safetensors.index.json",
            "model.safetensors",
            "pytorch_model.bin.index.json",
            "pytorch_model.bin",
        )
        candidates = [checkpoint / name for name in names]
    for path in candidates:
        if path.is_file() and path.name.endswith(".index.json"):
            where: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
            return [path.parent / name for name in sorted(set(where.values()))]
        if path.is_file():
            return [path]
    raise CheckpointError(
        f"{checkpoint} holds no exported model: neither model.safetensors, pytorch_model.bin nor an index"
    )


def save_sharded(state: dict[str, Any], folder: Path, limit: int, safe: bool) -> None:
    """Write a model's state dict to `folder`; files of an earlier export go once the new ones are there.

    Args:
        limit: bytes of a file.
        safe: as safetensors; else by `torch.save`.

    Raises:
        CheckpointError: `folder` is a file, or the state dict holds something that a safetensors file cannot.
    """
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file: a model is saved to a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    stem, ending = ("model", "safetensors") if safe else ("pytorch_model", "bin")
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    kept, further = without_duplicates(tensors) if safe else (tensors, {})
    parts = split(kept, limit)
    others = {name: value for name, value in state.items() if name not in tensors}
    parts[0] = {**parts[0], **others}
    for name, same in further.items():
        next(part for part in parts if same in part)[name] = state[same]
    names = [f"{stem}.{ending}"]
    if len(parts) > 1:
        names = [f"{stem}-{number:05d}-of-{len(parts):05d}.{ending}" for number in range(1, len(parts) + 1)]
    for name, part in zip(names, parts, strict=True):
        save_weights(part, folder / f".{name}.new", safe)
        flush(folder / f".{name}.new")
    index = folder / f"{stem}.{ending}.index.json"
    if len(parts) > 1:
        where = {key: name for name, part in zip(names, parts, strict=True) for key in part}
        total = sum(tensor.nbytes for tensor in kept.values())
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2, sort_keys=True)
        new = folder / f".{index.name}.new"
        new.write_text(text + "\n", encoding="utf-8")
        flush(new)
    for name in names:
        (folder / f".{name}.new").replace(folder / name)
    if len(parts) > 1:
        (folder / f".{index.name}.new").replace(index)
    else:
        index.unlink(missing_ok=True)
    old = re.compile(rf"{stem}(-\d{{5}}-of-\d{{5}})?\.{ending}")
    for path in folder.iterdir():
        if old.fullmatch(path.name) and path.name not in names:
            path.unlink()

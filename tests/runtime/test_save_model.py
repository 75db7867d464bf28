"""Exported models: files of weights in the layout of the hub."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from accelerate_runtime import Accelerator, load_checkpoint_in_model
from accelerate_runtime.checkpointing.layout import CheckpointError
from accelerate_runtime.checkpointing.shards import split
from accelerate_runtime.utils import load, save


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(50, 8), nn.Linear(8, 50, bias=False)
        self.out.weight = self.embed.weight
        self.norm = nn.BatchNorm1d(8)


def same(one: nn.Module, other: nn.Module) -> bool:
    others = other.state_dict()
    return all(torch.equal(tensor, others[name]) for name, tensor in one.state_dict().items())


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("limit", ["10GB", 300])
def test_what_was_exported_loads(tmp_path: Path, safe: bool, limit: Any) -> None:
    accelerator = Accelerator()
    model = accelerator.prepare(Tied())
    accelerator.save_model(model, tmp_path / "model", max_shard_size=limit, safe_serialization=safe)
    fresh = Tied()
    load_checkpoint_in_model(fresh, tmp_path / "model", strict=True)
    assert same(fresh, model)
    assert fresh.out.weight is fresh.embed.weight


def test_large_models_are_split_and_an_index_says_where_each_tensor_is(tmp_path: Path) -> None:
    Accelerator().save_model(Tied(), tmp_path, max_shard_size=1650)
    names = sorted(os.listdir(tmp_path))
    assert names == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]
    index = json.loads((tmp_path / names[2]).read_text())
    assert index["metadata"]["total_size"] == 4 * (50 * 8 + 4 * 8) + 8
    assert index["weight_map"]["out.weight"] == index["weight_map"]["embed.weight"] == names[0]


def test_a_new_export_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    accelerator = Accelerator()
    accelerator.save_model(Tied(), tmp_path, max_shard_size=300)
    (tmp_path / "config.json").write_text("{}")
    accelerator.save_model(Tied(), tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    Accelerator().save_model(nn.Linear(3, 3), tmp_path)
    with pytest.raises(CheckpointError, match=r"embed\.weight"):
        load_checkpoint_in_model(Tied(), tmp_path, strict=True)
    with pytest.raises(CheckpointError, match="holds no exported model"):
        load_checkpoint_in_model(Tied(), tmp_path / "nothing")


def test_what_is_no_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'ten' is not a size"):
        Accelerator().save_model(Tied(), tmp_path, max_shard_size="ten")


def test_a_tensor_larger_than_a_part_is_a_part_of_its_own() -> None:
    state = {name: torch.zeros(size, dtype=torch.uint8) for name, size in [("a", 3), ("b", 9), ("c", 2), ("d", 3)]}
    assert [list(part) for part in split(state, 5)] == [["a"], ["b"], ["c", "d"]]


def test_safetensors_names_what_it_leaves_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        save(Tied().state_dict(), tmp_path / "x.safetensors", safe_serialization=True)
    assert "Removed shared tensor names" in caplog.text
    assert "out.weight (the same as embed.weight)" in caplog.text


def test_safetensors_holds_tensors_only(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'epoch' of the state dict is of type int.*safe_serialization=False"):
        Accelerator().save({"epoch": 3}, tmp_path / "x.safetensors", safe_serialization=True)


def test_load_reads_what_save_wrote_and_runs_nothing(tmp_path: Path) -> None:
    save({"epoch": 3, "x": torch.ones(2)}, tmp_path / "x.pt")
    assert load(tmp_path / "x.pt")["epoch"] == 3
    torch.save({"where": Path("/")}, tmp_path / "y.pt")
    with pytest.raises(CheckpointError, match="weights_only"):
        load(tmp_path / "y.pt")
    assert load(tmp_path / "y.pt", weights_only=False) == {"where": Path("/")}


def test_files_may_be_read_by_whom_the_folder_says(tmp_path: Path) -> None:
    Accelerator().save_model(nn.Linear(2, 2), tmp_path)
    (tmp_path / "other").touch()
    assert (tmp_path / "model.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode

"""Which files are looked at together, by what they import."""

from __future__ import annotations

import os

from accelerate_migrate.analysis.components import MAX_FILES, components


def groups(seeds: str, **files: str) -> list[list[str]]:
    """The names (without ``.py``) of the files of each group; a seed is named with a space behind it."""
    sources = {os.path.abspath(name.replace("__", "/") + ".py"): text.encode() for name, text in files.items()}
    wanted = [os.path.abspath(name + ".py") for name in seeds.split()]
    return [sorted(os.path.relpath(path)[: -len(".py")] for path in group) for group in components(sources, wanted)]


def test_scripts_that_share_a_file_are_one_group() -> None:
    found = groups(
        "train finetune other", train="import engine", finetune="from engine import fit", engine="", other=""
    )
    assert found == [["engine", "finetune", "train"], ["other"]]


def test_a_file_that_no_seed_has_to_do_with_is_in_none() -> None:
    assert groups("train", train="import torch", lonely="import numpy") == [["train"]]


def test_names_of_a_package_may_be_files() -> None:
    found = groups(
        "train", train="from lib import (\n    net,\n    data,\n)", lib__net="", lib__data="", lib__unused=""
    )
    assert found == [["lib/data", "lib/net", "train"]]


def test_folders_that_a_script_puts_on_the_path_are_searched() -> None:
    found = groups("train", train="import sys\nsys.path.append('core')\nfrom net import Net", core__net="")
    assert found == [["core/net", "train"]]


def test_in_a_very_large_group_each_seed_stands_alone() -> None:
    many = {f"part{i}": "import hub" for i in range(MAX_FILES)}
    assert groups("part0 part1", hub="", **many) == [["part0"], ["part1"]]

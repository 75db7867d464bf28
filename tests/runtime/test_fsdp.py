"""What the plugin of FSDP takes and refuses, and how the parts of a model are chosen. scripts/fsdp_checks.py trains."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from accelerate_runtime import Accelerator, DistributedType
from accelerate_runtime.plugins.fsdp import FullyShardedDataParallelPlugin
from accelerate_runtime.strategies.wrapping import parts_to_wrap

Plugin = FullyShardedDataParallelPlugin


@pytest.mark.parametrize(
    ("given", "reshard"),
    [
        ({}, True),
        ({"sharding_strategy": "SHARD_GRAD_OP"}, False),
        ({"sharding_strategy": 2}, False),
        ({"sharding_strategy": "hybrid_shard"}, True),
        ({"sharding_strategy": "_HYBRID_SHARD_ZERO2"}, False),
        ({"reshard_after_forward": False}, False),
        ({"reshard_after_forward": "FULL_SHARD"}, True),
        ({"reshard_after_forward": "false"}, False),
    ],
)
def test_strategies_of_fsdp1_say_whether_to_reshard(given: dict[str, Any], reshard: bool) -> None:
    assert Plugin(**given).reshard_after_forward is reshard


def test_fields_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "VERSION": "2",
        "SHARDING_STRATEGY": "FULL_SHARD",  # a launcher says it with every value of the next
        "RESHARD_AFTER_FORWARD": "false",
        "AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "TRANSFORMER_CLS_TO_WRAP": "Block, Head",
        "STATE_DICT_TYPE": "FULL_STATE_DICT",
        "OFFLOAD_PARAMS": "true",
        "BACKWARD_PREFETCH": "BACKWARD_PRE",
        "CPU_RAM_EFFICIENT_LOADING": "true",
        "ACTIVATION_CHECKPOINTING": "true",
        "MIN_NUM_PARAMS": "2000",
    }.items():
        monkeypatch.setenv(f"FSDP_{name}", value)
    plugin = Plugin()
    assert (plugin.reshard_after_forward, plugin.auto_wrap_policy) == (False, "TRANSFORMER_BASED_WRAP")
    assert (plugin.transformer_cls_names_to_wrap, plugin.min_num_params) == (["Block", "Head"], 2000)
    assert (plugin.state_dict_type, plugin.cpu_offload) == ("FULL_STATE_DICT", True)
    assert (plugin.cpu_ram_efficient_loading, plugin.activation_checkpointing) == (True, True)
    assert Plugin(cpu_offload=False, min_num_params=1).to_dict()["cpu_offload"] is False


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"backward_prefetch": "NO_PREFETCH"}, "set_modules_to_backward_prefetch"),
        ({"forward_prefetch": True}, "set_modules_to_forward_prefetch"),
        ({"use_orig_params": False}, "always keeps the original parameters"),
        ({"sync_module_states": False}, "as the main process has them"),
        ({"limit_all_gathers": False}, "bounds its memory"),
        ({"state_dict_config": {}}, "state_dict_type alone"),
    ],
)
def test_options_of_fsdp1_are_refused_with_what_fsdp2_has(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(given))}=.*is an option of FSDP1: .*{told}"):
        Plugin(**given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"fsdp_version": 3}, "fsdp_version=3: allowed are 1 and 2"),
        ({"sharding_strategy": "ZERO3"}, "sharding_strategy='ZERO3': allowed are FULL_SHARD"),
        ({"sharding_strategy": "FULL_SHARD", "reshard_after_forward": False}, "contradict each other"),
        ({"state_dict_type": "LOCAL_STATE_DICT"}, "FSDP2 has FULL_STATE_DICT and SHARDED_STATE_DICT"),
        ({"auto_wrap_policy": "by_hand"}, "allowed are 'transformer_based_wrap', 'size_based_wrap', 'no_wrap'"),
        ({"min_num_params": -1}, "min_num_params=-1: must be a whole number"),
        ({"cpu_offload": "yes"}, "cpu_offload='yes': must be True or False"),
    ],
)
def test_values_that_are_none_are_named(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Plugin(**given)


def test_one_process_has_nothing_to_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Accelerator(fsdp_plugin=Plugin()).distributed_type == DistributedType.NO
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert Accelerator().distributed_type == DistributedType.NO
    with pytest.raises(TypeError, match="fsdp_plugin='x': pass a FullyShardedDataParallelPlugin"):
        Accelerator(fsdp_plugin="x")


def test_two_engines_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="ddp and fsdp are asked for at once"):
        Accelerator(fsdp_plugin=Plugin(), strategy="ddp")
    with pytest.raises(ValueError, match="strategy='zero': allowed are ddp, deepspeed, fsdp, "):
        Accelerator(strategy="zero")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 8), nn.Linear(8, 4)


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.layers = nn.ModuleList([Block(), Block()])
        self.others = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])
        self.head = nn.Linear(4, 10)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"auto_wrap_policy": "no_wrap"}, []),
        ({"auto_wrap_policy": "transformer_based_wrap"}, ["layers.1", "layers.0"]),
        (
            {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": "Embedding"},
            ["embedding"],
        ),
        ({"auto_wrap_policy": "size_based_wrap", "min_num_params": 45}, ["head", "layers.1", "layers.0"]),
        ({"auto_wrap_policy": "size_based_wrap", "min_num_params": 70}, ["layers.1", "layers.0"]),
        ({"auto_wrap_policy": lambda module, recurse, nonwrapped_numel: nonwrapped_numel == 50}, ["head"]),
    ],
)
def test_parts_are_chosen_by_class_by_repetition_or_by_size(given: dict[str, Any], names: list[str]) -> None:
    model = Blocks()
    called = {id(part): name for name, part in model.named_modules()}
    assert [called[id(part)] for part in parts_to_wrap(model, Plugin(**given))] == names


def test_a_part_with_a_weight_that_is_tied_outside_stays_with_the_model() -> None:
    model = Blocks()
    model.layers[1].tied = model.embedding.weight
    chosen = parts_to_wrap(model, Plugin(auto_wrap_policy="transformer_based_wrap"))
    assert [id(part) for part in chosen] == [id(model.layers[0])]


def test_a_class_that_is_not_there_is_named() -> None:
    plugin = Plugin(auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["GPTBlock"])
    with pytest.raises(ValueError, match="no part of class GPTBlock; it has Block, Blocks"):
        parts_to_wrap(Blocks(), plugin)

"""The sizes of a device mesh."""

from __future__ import annotations

import json
from typing import Any

import pytest

from accelerate_runtime import Accelerator, ParallelismConfig
from accelerate_runtime.utils import (
    DeepSpeedSequenceParallelConfig,
    TorchContextParallelConfig,
    TorchTensorParallelConfig,
    TorchTensorParallelPlugin,
)


def test_names_and_sizes() -> None:
    config = ParallelismConfig(dp_replicate_size=2, dp_shard_size=3, tp_size=2, cp_size=5)
    assert (config.total_size, config.data_parallel_size, config.non_data_parallel_size) == (60, 6, 10)
    assert config.dp_dim_names == ["dp_replicate", "dp_shard"]
    assert config.non_dp_dim_names == ["tp", "cp"]
    assert config.dp_shard_cp_dim_names == ["dp_shard", "cp"]
    assert config.dp_cp_dim_names == ["dp_replicate", "dp_shard", "cp"]
    assert config.fsdp_dim_names == ["dp_replicate", "dp_shard_cp"]
    assert config.tp_enabled
    assert not config.sp_enabled
    assert isinstance(config.tp_handler, TorchTensorParallelConfig)
    assert json.loads(config.to_json())["cp_handler"] == {"cp_comm_strategy": "allgather"}


def test_the_environment_fills_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARALLELISM_CONFIG_DP_SHARD_SIZE", "4")
    monkeypatch.setenv("PARALLELISM_CONFIG_CP_SIZE", "2")
    monkeypatch.setenv("PARALLELISM_CONFIG_CP_COMM_STRATEGY", "alltoall")
    config = ParallelismConfig(tp_size=3)
    assert (config.dp_shard_size, config.cp_size, config.tp_size, config.sp_size) == (4, 2, 3, 1)
    assert config.cp_handler == TorchContextParallelConfig("alltoall")
    monkeypatch.setenv("PARALLELISM_CONFIG_DP_SHARD_SIZE", "many")
    with pytest.raises(ValueError, match="dp_shard_size='many'"):
        ParallelismConfig()


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"tp_size": 0}, "tp_size=0: must be a whole number"),
        ({"dp_shard_size": 2.0}, "dp_shard_size=2.0"),
        ({"cp_size": 2, "sp_size": 2}, "do not go together"),
        ({"cp_size": 2, "dp_replicate_size": 2}, "set dp_shard_size > 1"),
        ({"cp_backend": "other"}, "cp_backend='other': allowed is 'torch'"),
        ({"cp_size": 2, "cp_handler": TorchTensorParallelConfig()}, "pass a TorchContextParallelConfig"),
    ],
)
def test_sizes_are_checked(sizes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ParallelismConfig(**sizes)


def test_handlers_are_checked() -> None:
    with pytest.raises(ValueError, match="Invalid cp_comm_strategy: pigeon"):
        TorchContextParallelConfig("pigeon")
    with pytest.raises(NotImplementedError, match="enable_async_tp"):
        TorchTensorParallelConfig(enable_async_tp=True)
    assert DeepSpeedSequenceParallelConfig().sp_seq_length_is_variable
    with pytest.raises(ValueError, match="pass sp_seq_length"):
        DeepSpeedSequenceParallelConfig(sp_seq_length_is_variable=False)
    with pytest.raises(ValueError, match="Invalid sp_attn_implementation: eager"):
        DeepSpeedSequenceParallelConfig(sp_attn_implementation="eager")


def test_a_plan_says_itself_what_is_split() -> None:
    with pytest.raises(ValueError, match="leave sequence_parallel and loss_parallel out"):
        TorchTensorParallelConfig(plan={"up": "colwise"}, sequence_parallel=True)
    with pytest.raises(NotImplementedError, match="torch_device_mesh"):
        TorchTensorParallelPlugin(2, object())
    with pytest.raises(ValueError, match="not both"):
        Accelerator(torch_tp_plugin=TorchTensorParallelPlugin(), parallelism_config=ParallelismConfig())
    with pytest.raises(TypeError, match="pass a TorchTensorParallelPlugin"):
        Accelerator(torch_tp_plugin=2)


def test_an_accelerator_takes_what_this_version_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = Accelerator(parallelism_config=ParallelismConfig())
    assert accelerator.parallelism_config is not None
    assert (accelerator.data_parallel_rank, accelerator.tensor_parallel_rank) == (0, 0)
    with pytest.raises(NotImplementedError, match=r"sp_size=2: sequence parallelism by DeepSpeed .*cp_size="):
        Accelerator(parallelism_config=ParallelismConfig(sp_size=2))
    with pytest.raises(NotImplementedError, match="cp_size=2 with tp_size=2 is not supported here"):
        Accelerator(parallelism_config=ParallelismConfig(cp_size=2, tp_size=2))
    with pytest.raises(ValueError, match=r"tp_size=2.*takes 2 processes, but there are 1"):
        Accelerator(parallelism_config=ParallelismConfig(tp_size=2))
    with pytest.raises(ValueError, match="strategy='tensor' needs the number of processes"):
        Accelerator(strategy="tensor")
    with pytest.raises(ValueError, match=r"dp_replicate_size=2.*takes 2 processes, but there are 1"):
        Accelerator(parallelism_config=ParallelismConfig(dp_replicate_size=2))
    with pytest.raises(TypeError, match="parallelism_config='x': pass a ParallelismConfig"):
        Accelerator(parallelism_config="x")  # type: ignore[arg-type]
    monkeypatch.setenv("ACCELERATE_USE_PARALLELISM_CONFIG", "true")
    monkeypatch.setenv("PARALLELISM_CONFIG_SP_SIZE", "2")
    with pytest.raises(NotImplementedError, match="sp_size=2"):
        Accelerator()

"""How models are cut, what handlers take, and what happens where a stage fails. scripts/pipeline_checks.py trains."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from accelerate_runtime import Accelerator, ParallelismConfig, prepare_pippy
from accelerate_runtime.strategies.pipeline.layout import lay_out
from accelerate_runtime.strategies.pipeline.order import interleaved, one_forward_one_backward
from accelerate_runtime.utils import MegatronLMPlugin, TorchPipelineParallelConfig

SCRIPT = Path(__file__).parent / "scripts" / "broken_pipeline.py"


class Net(nn.Module):
    def __init__(self, first: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(first, 4)
        self.norm = nn.LayerNorm(4)
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))
        self.head = nn.Linear(4, 4)


def test_stages_are_balanced_by_their_parameters() -> None:
    assert lay_out(Net(), 2, None, ()).cuts == ("blocks.3",)
    assert lay_out(Net(20), 2, None, ()).cuts == ("blocks.1",)
    layout = lay_out(Net(), 3, ["blocks.1", "blocks.4"], ["norm"])
    assert [layout.stage_of[name] for name in ("embedding", "blocks.0", "blocks.3", "blocks.4", "head", "norm")] == [
        0,
        0,
        1,
        2,
        2,
        2,
    ]
    assert lay_out(nn.Sequential(*[nn.Linear(2, 2) for _ in range(4)]), 4, None, ()).cuts == ("1", "2", "3")


def test_blocks_are_not_cut_inside() -> None:
    net = Net()
    net.blocks = nn.ModuleList(nn.ModuleDict({"up": nn.Linear(4, 16), "down": nn.Linear(16, 4)}) for _ in range(3))
    assert lay_out(net, 2, None, ()).cuts in [("blocks.1",), ("blocks.2",)]  # a residual connection may go around "up"
    straight = nn.Sequential(nn.Sequential(*[nn.Linear(2, 2) for _ in range(3)]), nn.Linear(2, 2))
    assert lay_out(straight, 2, None, ()).cuts == ("0.2",)


@pytest.mark.parametrize(
    ("stages", "split_points", "at_end", "told"),
    [
        (9, None, (), r"no nn\.ModuleList, .* that can be cut into 9 stages"),
        (3, ["blocks.1"], (), r"split_points=\['blocks.1'\]\) makes 2 stages, but there are 3: name 2 modules"),
        (2, ["blocks.9"], (), "the model has no module 'blocks.9'; it has embedding, norm, blocks"),
        (3, ["blocks.2", "blocks.1"], (), "in the order in which the model has them"),
        (2, None, ("tail",), r"at_end=\.\.\.\): the model has no module and no parameter 'tail'"),
    ],
)
def test_what_cannot_be_cut_is_said(stages: int, split_points: Any, at_end: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        lay_out(Net(), stages, split_points, at_end)


def test_the_order_of_1f1b_keeps_few_micro_batches_under_way() -> None:
    for rank in range(4):
        under_way, most = 0, 0
        order = one_forward_one_backward(rank, 4, 8)
        for action in order:
            under_way += -1 if action.backward else 1
            most = max(most, under_way)
        assert (len(order), most) == (16, 4 - rank)
    assert len(interleaved(1, 2, 4, 2)) == 16


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"schedule": "zb"}, "schedule='zb': allowed are gpipe, 1f1b, interleaved"),
        ({"num_microbatches": 0}, "num_microbatches=0: must be a whole number, 1 or more"),
        ({"stages_per_process": 2}, "'interleaved' needs 2 or more"),
        ({"loss_fn": print}, "with 'gpipe' the script makes the loss"),
        ({"loss_reduction": "none"}, "allowed are 'mean' and 'sum'"),
    ],
)
def test_what_the_handler_cannot_take(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        TorchPipelineParallelConfig(**given)


def test_the_handler_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SIZE": "2", "SCHEDULE": "1F1B", "SPLIT_POINTS": "blocks.1, head"}.items():
        monkeypatch.setenv(f"PARALLELISM_CONFIG_PP_{name}", value)
    handler = ParallelismConfig().pp_handler
    assert handler is not None
    assert (handler.schedule, handler.split_points) == ("1f1b", ["blocks.1", "head"])


def test_a_pipeline_needs_its_size() -> None:
    with pytest.raises(ValueError, match=r"pass Accelerator\(parallelism_config=ParallelismConfig\(pp_size="):
        Accelerator(strategy="pipeline")


def test_inference_on_one_process_is_the_models_own() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    assert prepare_pippy(model, example_args=(torch.ones(1, 2),)) is model
    assert not model.training


def test_megatron_lms_plugin_asks_for_the_same() -> None:
    plugin = MegatronLMPlugin(tp_degree=1, pp_degree=2, num_micro_batches=8, recompute_activations=True)
    config = plugin.parallelism(4)
    assert (config.pp_size, config.dp_replicate_size, plugin.gradient_clipping) == (2, 2, 1.0)
    assert config.pp_handler is not None
    assert (config.pp_handler.num_microbatches, config.pp_handler.activation_checkpointing) == (8, True)
    with pytest.raises(NotImplementedError, match=r"MegatronLMPlugin\(use_distributed_optimizer=\.\.\.\): options of"):
        MegatronLMPlugin(use_distributed_optimizer=True)
    assert MegatronLMPlugin(use_distributed_optimizer=False, expert_model_parallel_size=1).tp_degree == 1
    with pytest.raises(ValueError, match="takes 2 processes for each copy of the model, but there are 3"):
        plugin.parallelism(3)
    with pytest.raises(ValueError, match="num_micro_batches=4\\) needs pp_degree > 1"):
        MegatronLMPlugin(num_micro_batches=4)
    for option, size in (("recompute_activations", "pp_degree"), ("sequence_parallelism", "tp_degree")):
        with pytest.raises(ValueError, match=f"{option}=True\\) needs {size} > 1"):
            MegatronLMPlugin(**{option: True})
    assert MegatronLMPlugin(num_micro_batches=1).num_micro_batches == 1
    with pytest.raises(ValueError, match="ask for the same: leave one out"):
        Accelerator(megatron_lm_plugin=plugin, parallelism_config=config)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("killed", r"process 1 \(pid \d+\) .*SIGKILL"),
        ("order", r"pipeline: stage 1 of 2 \(cut at blocks\.2\) uses norm\.weight, norm\.bias, which another stage"),
    ],
)
def test_where_a_stage_fails_all_end_and_the_cause_is_told(how: str, told: str) -> None:
    began = time.monotonic()
    command = [sys.executable, "-m", "accelerate_runtime", "launch", "--cpu", "--num_processes", "2", str(SCRIPT), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert re.search(told, done.stderr), done.stderr[-3000:]
    assert time.monotonic() - began < 60

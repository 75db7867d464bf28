"""What the plugin of DeepSpeed takes and refuses. scripts/deepspeed_checks.py trains."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from accelerate_runtime import Accelerator
from accelerate_runtime.arguments import read_mixed_precision
from accelerate_runtime.utils import (
    DeepSpeedPlugin,
    DummyOptim,
    DummyScheduler,
    HfDeepSpeedConfig,
    get_active_deepspeed_plugin,
)


def test_fields_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "DEEPSPEED_ZERO_STAGE": "3",
        "DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "cpu",
        "DEEPSPEED_OFFLOAD_PARAM_DEVICE": "nvme",
        "DEEPSPEED_OFFLOAD_PARAM_NVME_PATH": "/disk",
        "DEEPSPEED_ZERO3_INIT": "true",
        "DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true",
        "DEEPSPEED_MOE_LAYER_CLS_NAMES": "Experts",
        "GRADIENT_ACCUMULATION_STEPS": "4",
        "GRADIENT_CLIPPING": "0.5",
    }.items():
        monkeypatch.setenv(f"ACCELERATE_{name}", value)
    plugin = DeepSpeedPlugin()
    assert (plugin.zero_stage, plugin.offload_optimizer_device, plugin.offload_param_device) == (3, "cpu", "nvme")
    assert (plugin.zero3_init_flag, plugin.transformer_moe_cls_names) == (True, "Experts")
    assert plugin.deepspeed_config == {
        "zero_optimization": {
            "stage": 3,
            "offload_optimizer": {"device": "cpu"},
            "offload_param": {"device": "nvme", "nvme_path": "/disk"},
            "stage3_gather_16bit_weights_on_model_save": True,
        },
        "gradient_accumulation_steps": 4,
        "gradient_clipping": 0.5,
    }
    assert DeepSpeedPlugin(zero_stage=1, offload_param_device="none", offload_optimizer_device="none").zero_stage == 1


def test_a_config_is_a_file_a_dict_or_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": "auto"}, "gradient_clipping": 1.0}), encoding="utf-8")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_CONFIG_FILE", str(path))
    plugin = DeepSpeedPlugin()
    assert (plugin.zero_stage, plugin.gradient_clipping) == (2, 1.0)
    monkeypatch.setenv("ACCELERATE_GRADIENT_CLIPPING", "0.5")
    with pytest.raises(
        ValueError, match=r"ds.json says gradient_clipping: 1.0, but ACCELERATE_GRADIENT_CLIPPING=0.5 says"
    ):
        DeepSpeedPlugin()
    assert DeepSpeedPlugin({"zero_optimization": {"stage": 3}}).zero_stage == 3
    assert DeepSpeedPlugin({}, zero_stage=2).get_value("zero_optimization.stage") == 2
    assert DeepSpeedPlugin({"gradient_clipping": 0.5}).zero_stage == 0  # as DeepSpeed reads such a config
    with pytest.raises(ValueError, match=r"config file .*none.json does not exist"):
        DeepSpeedPlugin(hf_ds_config=str(tmp_path / "none.json"))
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"ds.json is not JSON"):
        DeepSpeedPlugin(hf_ds_config=path)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"zero_stage": 4}, "zero_stage=4: allowed are 0, 1, 2 and 3"),
        (
            {"zero_stage": 2, "offload_param_device": "cpu"},
            "offload_param_device='cpu' needs zero_stage=3 or more, which is 2",
        ),
        ({"offload_optimizer_device": "disk"}, "offload_optimizer_device='disk': allowed are none, cpu, nvme"),
        ({"offload_optimizer_device": "nvme"}, "needs offload_optimizer_nvme_path"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps=0: must be a whole number"),
        ({"gradient_clipping": "much"}, "gradient_clipping='much': must be a number"),
        ({"enable_msamp": True}, "MS-AMP is not supported"),
        ({"zero3_init_flag": "perhaps"}, "zero3_init_flag='perhaps': must be True or False"),
        ({"hf_ds_config": 3}, "hf_ds_config=3: pass a dict"),
        ({"hf_ds_config": {"sequence_parallel_size": 2}}, r"says sequence_parallel_size: 2: .*Ulysses.*cp_size="),
        (
            {"hf_ds_config": {"tensor_parallel": {"autotp_size": 2}}},
            r"says tensor_parallel\.autotp_size: 2: .* ParallelismConfig\(tp_size=",
        ),
    ],
)
def test_values_that_are_none_are_named(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        DeepSpeedPlugin(**given)


def test_a_config_answers_by_dotted_keys() -> None:
    config = HfDeepSpeedConfig({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "bf16": {}})
    assert (config.is_zero3(), config.is_zero2(), config.is_offload()) == (True, False, True)
    assert config.get_value("zero_optimization.stage") == 3
    assert config.get_value("fp16.enabled", False) is False
    assert (config.is_true("zero_optimization.stage"), config.is_false("bf16.enabled")) == (True, False)
    assert config.find_config_node("optimizer.params.lr") == (None, "lr")
    config.del_config_sub_tree("zero_optimization.offload_param")
    assert not config.is_offload()
    with pytest.raises(ValueError, match=r"fp16 is not in"):
        config.del_config_sub_tree("fp16", must_exist=True)


def test_values_left_open_are_filled_by_hand() -> None:
    plugin = DeepSpeedPlugin({"optimizer": {"params": {"lr": "auto", "eps": 1.0}}, "train_batch_size": "auto"})
    assert plugin.is_auto("optimizer.params.lr")
    plugin.deepspeed_config_process(must_match=False, **{"optimizer.params.lr": 0.1, "train_batch_size": 8})
    assert (plugin.get_value("optimizer.params.lr"), plugin.get_value("train_batch_size")) == (0.1, 8)
    with pytest.raises(ValueError, match=r"contradicts other settings.*\n- ds optimizer.params.eps=1.0 vs arg"):
        plugin.deepspeed_config_process(**{"optimizer.params.eps": 0.5})


def test_a_launch_config_that_says_no_precision_leaves_it_to_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    config = {"bf16": {"enabled": True}}
    assert read_mixed_precision(None, DeepSpeedPlugin(config)) == "bf16"
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    with pytest.raises(ValueError, match=r"says bf16\.enabled: True, but mixed_precision='fp16' says False"):
        read_mixed_precision(None, DeepSpeedPlugin(config))


def test_placeholders_do_nothing() -> None:
    model = nn.Linear(2, 2)
    optimizer = DummyOptim(model.parameters(), lr=0.5)
    assert optimizer.param_groups[0]["lr"] == 0.5
    for placeholder in (optimizer, DummyScheduler(optimizer)):
        with pytest.raises(RuntimeError, match="step the one that prepare"):
            placeholder.step()


def test_what_contradicts_deepspeed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="deepspeed_plugin='x': pass a DeepSpeedPlugin"):
        Accelerator(deepspeed_plugin="x")
    with pytest.raises(ValueError, match="deepspeed_plugin or deepspeed_plugins, not both"):
        Accelerator(deepspeed_plugin=DeepSpeedPlugin(), deepspeed_plugins={"a": DeepSpeedPlugin()})
    with pytest.raises(ValueError, match="ddp and deepspeed are asked for at once"):
        Accelerator(deepspeed_plugin=DeepSpeedPlugin(), strategy="ddp")
    with pytest.raises(ValueError, match="DeepSpeed has no fp16 on the CPU"):
        Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(), mixed_precision="fp16")
    with pytest.raises(ValueError, match="this Accelerator has no DeepSpeedPlugin"):
        get_active_deepspeed_plugin(Accelerator().state)
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(
        ImportError, match=r"^Training by DeepSpeed needs it, .*: pip install 'accelerate-migrate\[deepspeed\]'$"
    ):
        Accelerator(deepspeed_plugin=DeepSpeedPlugin())


@pytest.mark.e2e
def test_one_process_trains_by_deepspeed_without_a_launcher(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ONE_PROCESS, encoding="utf-8")
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.splitlines()[-1] == "DEEPSPEED 1 True"


ONE_PROCESS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from accelerate_runtime import Accelerator
from accelerate_runtime.utils import DeepSpeedPlugin

accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(zero_stage=2, offload_optimizer_device="cpu"))
torch.manual_seed(0)
x = torch.randn(32, 4)
model = nn.Linear(4, 1)
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 8)
)
losses = []
for _ in range(3):
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
print(accelerator.distributed_type.value, accelerator.num_processes, losses[-1] < 0.2 * losses[0])
"""

"""`config` and `write_basic_config`: answers, or the devices here, become a launch config."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelerate_runtime.launch import basic, wizard
from accelerate_runtime.launch.config import ConfigError
from accelerate_runtime.launch.files import read_config
from accelerate_runtime.utils import write_basic_config


def answer(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    """Give these answers, one after another; then nobody answers."""
    left = list(answers)

    def next_one(*_: object) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    monkeypatch.setattr("builtins.input", next_one)


def devices(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    for module in (basic, wizard):
        monkeypatch.setattr(module, "count_devices", lambda: count)


def test_pressing_enter_trains_on_what_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    for count, kind in ((0, "NO"), (4, "MULTI_GPU")):
        devices(monkeypatch, count)
        answer(monkeypatch, *([] if count == 0 else ["y"]), *[""] * (9 if count else 6))
        wizard.ask_and_write(path)
        got = read_config(path)
        assert (got.distributed_type, got.num_processes, got.use_cpu) == (kind, max(1, count), count == 0)
        assert (got.mixed_precision, got.num_machines, got.dynamo_backend) == ("no", 1, None)


def test_every_question_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    devices(monkeypatch, 2)
    machines = ["2", "1", "10.0.0.1", "1234", "c10d"]
    gpus = ["8", "0,1,2,3", "y"]
    precision_and_compiling = ["half", "bf16", "y", "eager", "max-autotune", "y", "n", "y"]
    answer(monkeypatch, "gpu", *machines, *gpus, "copy", *precision_and_compiling, "y")
    wizard.ask_and_write(tmp_path / "a.yaml")
    got = read_config(tmp_path / "a.yaml")
    assert (got.num_machines, got.machine_rank, got.main_process_ip, got.main_process_port) == (2, 1, "10.0.0.1", 1234)
    assert (got.rdzv_backend, got.num_processes, got.gpu_ids, got.enable_cpu_affinity) == ("c10d", 8, "0,1,2,3", True)
    assert (got.mixed_precision, got.dynamo_backend, got.dynamo_mode) == ("bf16", "eager", "max-autotune")
    assert (got.dynamo_use_fullgraph, got.dynamo_use_dynamic, got.dynamo_use_regional_compilation) == (
        True,
        False,
        True,
    )
    assert got.debug is True


@pytest.mark.parametrize(
    ("answers", "kind", "engines"),
    [
        (
            ["fsdp", "n", "transformer", "Block", "", "y", ""],
            "FSDP",
            {
                "fsdp": {
                    "reshard_after_forward": "false",
                    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                    "transformer_layer_cls_to_wrap": "Block",
                    "offload_params": "false",
                    "activation_checkpointing": "true",
                    "state_dict_type": "SHARDED_STATE_DICT",
                }
            },
        ),
        (
            ["deepspeed", "", "3", "cpu", "nvme", "/scratch"],
            "DEEPSPEED",
            {
                "deepspeed": {
                    "zero_stage": "3",
                    "offload_optimizer_device": "cpu",
                    "offload_param_device": "nvme",
                    "offload_param_nvme_path": "/scratch",
                }
            },
        ),
        (["deepspeed", "ds.json"], "DEEPSPEED", {"deepspeed": {"deepspeed_config_file": "ds.json"}}),
        (
            ["tensor", "2", "y"],
            "MULTI_CPU",
            {"parallelism_config": {"tp_size": "2", "tp_sequence_parallel": "true", "dp_shard_size": "2"}},
        ),
        (
            ["megatron", "1", "2", "8", "y", "0.5"],
            "MEGATRON_LM",
            {
                "megatron_lm": {
                    "tp_degree": "1",
                    "pp_degree": "2",
                    "num_micro_batches": "8",
                    "recompute_activations": "true",
                    "gradient_clipping": "0.5",
                }
            },
        ),
    ],
)
def test_engines_have_questions_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: list[str], kind: str, engines: dict[str, dict[str, str]]
) -> None:
    answer(monkeypatch, "cpu", "1", "4", *answers, "no", "n", "n")
    wizard.ask_and_write(tmp_path / "a.yaml")
    got = read_config(tmp_path / "a.yaml")
    assert (got.distributed_type, got.engines) == (kind, engines)


def test_a_file_is_overwritten_only_when_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("mine: 1")
    answer(monkeypatch, "")
    wizard.ask_and_write(tmp_path / "a.yaml")
    assert (tmp_path / "a.yaml").read_text() == "mine: 1"


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer(monkeypatch, "cpu")
    with pytest.raises(ConfigError, match="nobody answers; `accelerate-runtime config default`"):
        wizard.ask_and_write(tmp_path / "a.yaml")
    assert not (tmp_path / "a.yaml").exists()


def test_answers_that_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer(monkeypatch, "cpu", "1", "0", "no", "n", "n")
    with pytest.raises(ConfigError, match="config: num_processes is 0"):
        wizard.ask_and_write(tmp_path / "a.yaml")


@pytest.mark.parametrize("name", ["config.yml", "config.json"])
@pytest.mark.parametrize(("count", "kind"), [(0, "NO"), (1, "NO"), (4, "MULTI_GPU")])
def test_a_basic_config_takes_all_devices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, count: int, kind: str
) -> None:
    devices(monkeypatch, count)
    assert write_basic_config("BF16", tmp_path / "sub" / name) == tmp_path / "sub" / name
    got = read_config(tmp_path / "sub" / name)
    assert (got.distributed_type, got.num_processes, got.use_cpu) == (kind, max(1, count), count == 0)
    assert got.mixed_precision == "bf16"


def test_a_basic_config_leaves_a_file_that_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    path = write_basic_config()
    assert path == tmp_path / "accelerate" / "default_config.yaml"
    before = path.read_text()
    assert write_basic_config("fp16") is False
    assert path.read_text() == before
    assert "is left as it is" in capsys.readouterr().out
    with pytest.raises(ValueError, match="mixed_precision='half': allowed are no, fp16, bf16, fp8"):
        write_basic_config("half", tmp_path / "other.yaml")

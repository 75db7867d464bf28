"""Engines on the command line and in launch configs: their options reach the processes by the engines' variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelerate_runtime import Accelerator
from accelerate_runtime.launch.config import ConfigError, merge
from accelerate_runtime.launch.engines import ENGINES
from accelerate_runtime.launch.files import read_config, update_config, write_config
from accelerate_runtime.launch.options import parse
from accelerate_runtime.launch.plan import describe, resolve
from accelerate_runtime.plugins.deepspeed import DeepSpeedPlugin
from accelerate_runtime.plugins.fsdp import FullyShardedDataParallelPlugin
from accelerate_runtime.plugins.megatron import MegatronLMPlugin
from accelerate_runtime.plugins.megatron_options import KINDS
from accelerate_runtime.plugins.parallelism import ParallelismConfig

FSDP = """
distributed_type: FSDP
num_processes: 2
fsdp_config:
  fsdp_version: 2
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: [Block, Head]
  fsdp_reshard_after_forward: false
"""


def environment(words: str, file: Path | None = None) -> dict[str, str]:
    """What the processes would get."""
    flags = parse([*words.split(), "x.py"]).flags
    settings = merge(flags) if file is None else merge(flags, read_config(file), str(file))
    found = resolve(settings, lambda: 2).environment
    return {name: value for name, value in found.items() if name != "OMP_NUM_THREADS"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "fsdp.yaml"
    path.write_text(FSDP, encoding="utf-8")
    return path


def test_flags_reach_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--use_fsdp --fsdp_state_dict_type FULL_STATE_DICT --fsdp-offload-params true --fsdp_version 1"
    for name, value in environment(words).items():
        monkeypatch.setenv(name, value)
    plugin = FullyShardedDataParallelPlugin()
    assert (plugin.state_dict_type, plugin.cpu_offload, plugin.fsdp_version) == ("FULL_STATE_DICT", True, 1)


def test_a_file_asks_for_an_engine_and_flags_win_by_option(config: Path) -> None:
    said = {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_TRANSFORMER_CLS_TO_WRAP": "Block,Head",
        "FSDP_RESHARD_AFTER_FORWARD": "false",
    }
    assert environment("", config) == said
    assert environment("--fsdp_reshard_after_forward true", config) == said | {"FSDP_RESHARD_AFTER_FORWARD": "true"}
    assert environment("--cpu", config) == said | {"ACCELERATE_USE_CPU": "true"}
    assert environment("--multi_gpu", config) == {}


def test_what_is_said_is_shown_and_kept(config: Path) -> None:
    settings = merge(parse(["x.py"]).flags, read_config(config), str(config))
    shown = {name: value for name, value, _ in describe(settings, resolve(settings, lambda: 2))}
    assert shown["fsdp_transformer_layer_cls_to_wrap"] == "Block,Head"
    update_config(config)
    assert environment("", config)["FSDP_TRANSFORMER_CLS_TO_WRAP"] == "Block,Head"
    write_config(config, read_config(config))
    assert environment("", config)["FSDP_TRANSFORMER_CLS_TO_WRAP"] == "Block,Head"


def test_sizes_of_a_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--use_parallelism_config --parallelism_config_dp_replicate_size 2 --parallelism_config_dp_shard_size 4"
    for name, value in environment(words).items():
        monkeypatch.setenv(name, value)
    assert (ParallelismConfig().dp_replicate_size, ParallelismConfig().dp_shard_size) == (2, 4)


def test_tensor_parallelism(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--use_parallelism_config --parallelism_config_tp_size 2 --parallelism_config_tp_sequence_parallel true"
    for name, value in environment(words).items():
        monkeypatch.setenv(name, value)
    handler = ParallelismConfig().tp_handler
    assert handler is not None
    assert (ParallelismConfig().tp_size, handler.sequence_parallel, handler.loss_parallel) == (2, True, False)


def test_options_without_their_engine_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"fsdp_version has no effect without --use_fsdp \(distributed_type"):
        environment("--fsdp_version 2")
    path = tmp_path / "a.yaml"
    path.write_text("distributed_type: MULTI_GPU\nfsdp_config: {fsdp_version: 2}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="fsdp_version has no effect without --use_fsdp"):
        environment("", path)


def test_every_option_has_a_variable_of_its_own() -> None:
    variables = [variable for engine in ENGINES.values() for variable, _ in engine.options.values() if variable]
    assert len(variables) == len(set(variables))


DEEPSPEED = """
distributed_type: DEEPSPEED
num_processes: 2
deepspeed_config:
  zero_stage: 3
  offload_optimizer_device: none
  zero3_init_flag: true
  gradient_accumulation_steps: 4
  gradient_clipping: 1.0
  deepspeed_multinode_launcher: standard
"""


def test_deepspeed_by_a_file_and_by_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deepspeed.yaml"
    path.write_text(DEEPSPEED, encoding="utf-8")
    found = environment("--zero_stage 1", path)
    assert found["ACCELERATE_USE_DEEPSPEED"] == "true"
    assert found["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "4"
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    plugin = DeepSpeedPlugin()
    assert (plugin.zero_stage, plugin.gradient_clipping, plugin.zero3_init_flag) == (1, 1.0, True)
    assert (plugin.gradient_accumulation_steps, plugin.offload_optimizer_device) == (4, "none")
    other = environment("--gradient_accumulation_steps 2", path)  # of any training: the flag wins
    assert other["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "2"
    update_config(path)
    assert environment("--zero_stage 1", path) == found | {"ACCELERATE_MIXED_PRECISION": "no"}
    flags = environment("--use_deepspeed --deepspeed_config_file ds.json --cpu")
    assert flags["ACCELERATE_DEEPSPEED_CONFIG_FILE"] == "ds.json"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--use_deepspeed --deepspeed_hostfile hosts", "deepspeed_hostfile: machines are not started from here"),
        ("--use_deepspeed --deepspeed_multinode_launcher pdsh", "deepspeed_multinode_launcher pdsh: machines are not"),
        ("--zero_stage 3", r"zero_stage has no effect without --use_deepspeed \(distributed_type: DEEPSPEED\)"),
        ("--use_deepspeed --use_fsdp", "--use_fsdp and --use_deepspeed cannot go together"),
        (
            "--use_parallelism_config --parallelism_config_sp_size 2",
            "parallelism_config_sp_size 2: .*Ulysses.* parallelism_config_cp_size 2",
        ),
    ],
)
def test_what_deepspeed_cannot_be_asked_for(words: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        environment(words)


MEGATRON_LM = """
distributed_type: MEGATRON_LM
num_processes: 4
megatron_lm_config:
  megatron_lm_tp_degree: 1
  megatron_lm_pp_degree: 2
  megatron_lm_num_micro_batches: 8
  megatron_lm_recompute_activations: true
  megatron_lm_use_distributed_optimizer: false
  megatron_lm_expert_model_parallel_size: 1
  gradient_clipping: 0.5
"""


def test_megatron_lm_by_a_file_and_by_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "megatron.yaml"
    path.write_text(MEGATRON_LM, encoding="utf-8")
    found = environment("--megatron_lm_num_micro_batches 4", path)
    assert found["ACCELERATE_USE_MEGATRON_LM"] == "true"
    assert found["MEGATRON_LM_NUM_MICRO_BATCHES"] == "4"
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    plugin = MegatronLMPlugin()
    assert (plugin.tp_degree, plugin.pp_degree, plugin.num_micro_batches) == (1, 2, 4)
    assert (plugin.gradient_clipping, plugin.recompute_activations, plugin.sequence_parallelism) == (0.5, True, False)
    assert MegatronLMPlugin(gradient_clipping=2.0, num_micro_batches=2).gradient_clipping == 2.0
    update_config(path)
    assert environment("--megatron_lm_num_micro_batches 4", path) == found | {"ACCELERATE_MIXED_PRECISION": "no"}


def test_every_option_of_megatron_lm_is_read() -> None:
    assert ENGINES["megatron_lm"].options.keys() == KINDS.keys()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("USE_DISTRIBUTED_OPTIMIZER", "true", r"MegatronLMPlugin\(use_distributed_optimizer=\.\.\.\): options of"),
        ("CONTEXT_PARALLEL_SIZE", "2", r"MegatronLMPlugin\(context_parallel_size=\.\.\.\): options of"),
        ("TP_DEGREE", "two", "MEGATRON_LM_TP_DEGREE='two' is not a whole number"),
        ("GRADIENT_CLIPPING", "much", "MEGATRON_LM_GRADIENT_CLIPPING='much' is not a number"),
        ("SEQUENCE_PARALLELISM", "true", r"MegatronLMPlugin\(sequence_parallelism=True\) needs tp_degree > 1"),
        ("ENGINE", "other", r"MegatronLMPlugin\(engine='other'\): allowed "),
    ],
)
def test_what_megatron_lm_cannot_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_MEGATRON_LM", "true")
    monkeypatch.setenv(f"MEGATRON_LM_{name}", value)
    with pytest.raises((ValueError, NotImplementedError), match=told):
        Accelerator()


def test_megatron_lm_and_sizes_of_a_mesh_are_not_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_MEGATRON_LM", "true")
    with pytest.raises(ValueError, match=r"--use_megatron_lm .* and parallelism_config ask for the same"):
        Accelerator(parallelism_config=ParallelismConfig())
    monkeypatch.setenv("ACCELERATE_USE_PARALLELISM_CONFIG", "true")
    with pytest.raises(ValueError, match=r"--use_megatron_lm .* and the launcher's parallelism_config .* ask for the"):
        Accelerator()
    monkeypatch.delenv("ACCELERATE_USE_MEGATRON_LM")
    with pytest.raises(ValueError, match=r"megatron_lm_plugin and the launcher's parallelism_config"):
        Accelerator(megatron_lm_plugin=MegatronLMPlugin())


def test_the_plugin_is_seen_on_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_MEGATRON_LM", "true")
    monkeypatch.setenv("MEGATRON_LM_GRADIENT_CLIPPING", "0.25")
    plugin = Accelerator().state.megatron_lm_plugin
    assert plugin is not None
    assert plugin.gradient_clipping == 0.25
    monkeypatch.delenv("ACCELERATE_USE_MEGATRON_LM")
    assert Accelerator().state.megatron_lm_plugin is None

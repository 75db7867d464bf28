"""Launch configs as files: what is read and written, and one line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from accelerate_runtime.launch.config import ConfigError, LaunchConfig, merge
from accelerate_runtime.launch.files import default_path, read_config, update_config, write_config

FULL = """
compute_environment: LOCAL_MACHINE
debug: true
distributed_type: MULTI_CPU
downcast_bf16: 'no'
dynamo_config:
  dynamo_backend: INDUCTOR
  use_dynamic: true
enable_cpu_affinity: false
fsdp_config: {}
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_name: a-tpu
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: true
"""


def config(tmp_path: Path, text: str) -> LaunchConfig:
    path = tmp_path / "launch.yaml"
    path.write_text(text, encoding="utf-8")
    return read_config(path)


def test_a_file_as_accelerate_writes_it(tmp_path: Path) -> None:
    got = config(tmp_path, FULL)
    assert (got.distributed_type, got.use_cpu, got.num_processes) == ("MULTI_CPU", True, 2)
    assert (got.mixed_precision, got.debug, got.rdzv_backend) == ("bf16", True, "static")
    assert (got.dynamo_backend, got.dynamo_use_dynamic, got.dynamo_mode) == ("inductor", True, None)


def test_json_is_yaml_too(tmp_path: Path) -> None:
    assert config(tmp_path, '{"distributed_type": "NO", "num_processes": 1}').num_processes == 1


def test_a_bare_no_means_no(tmp_path: Path) -> None:
    got = config(tmp_path, "distributed_type: NO\nmixed_precision: no\ndynamo_backend: NO\n")
    assert (got.distributed_type, got.mixed_precision, got.dynamo_backend) == ("NO", "no", "no")


def test_old_keys_are_understood(tmp_path: Path) -> None:
    got = config(tmp_path, "distributed_type: NO\nfp16: true\ndynamo_backend: INDUCTOR\n")
    assert (got.mixed_precision, got.dynamo_backend) == ("fp16", "inductor")


def test_an_engines_section_waits_for_its_engine_to_be_refused(tmp_path: Path) -> None:
    """`--multi_gpu` may overrule the engine, and then its section says nothing."""
    got = config(tmp_path, "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n")
    assert got.distributed_type == "FSDP"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("distributed_type: NO\nnum_proceses: 2\n", "unknown key num_proceses"),
        ("a: 1\nb: 2\n", "unknown keys a, b"),
        ("dynamo_config: {fast: true}\n", "dynamo_config: unknown key dynamo_fast"),
        ("dynamo_config: 3\n", "dynamo_config is 3; it must be keys and values"),
        ("dynamo_config: {backend: fast}\n", "dynamo_backend is 'fast'; allowed are no, eager"),
        ("num_processes: 0\n", "num_processes is 0; it must be a whole number, 1 or more"),
        ("num_processes: two\n", "num_processes is 'two'"),
        ("num_processes: true\n", "num_processes is True"),
        ("mixed_precision: fp9\n", "mixed_precision is 'fp9'; allowed are no, fp16, bf16"),
        ("distributed_type: MULTI\n", "distributed_type is 'MULTI'; allowed are NO, MULTI_CPU"),
        ("distributed_type: FSDP\nfsdp_config: {a: 2}\n", "fsdp_config: unknown key a; known are activation_checkp"),
        ("fsdp_config: 3\n", "fsdp_config is 3; it must be keys and values"),
        ("megatron_lm_config: {tp: 2}\n", "megatron_lm_config: unknown key tp; known are attention_backend, "),
        ("deepspeed_config: {stage: 2}\n", "deepspeed_config: unknown key stage; known are deepspeed_config_file, "),
        ("mpirun_config: {mpirun_hostfile: h}\n", "mpirun_config: .* is not supported in this version"),
        ("compute_environment: AMAZON_SAGEMAKER\nprofile: p\n", "AMAZON_SAGEMAKER is not supported in this version"),
        ("use_cpu: 3\n", "use_cpu is 3; it must be true or false"),
        ("- a\n", "expected keys and values, found list"),
        ("", "expected keys and values, found NoneType"),
        ("a: [\n", "line 2: not YAML"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        config(tmp_path, text)
    assert "launch.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_config(tmp_path / "none.yaml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_config(tmp_path / "binary")


@pytest.mark.parametrize("name", ["a.yaml", "a.json", "new/folder/a.yml"])
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    said = LaunchConfig(
        distributed_type="MULTI_GPU",
        use_cpu=False,
        num_processes=4,
        gpu_ids="0,1,2,3",
        mixed_precision="no",
        dynamo_backend="inductor",
        dynamo_use_fullgraph=True,
    )
    write_config(tmp_path / name, said)
    got = read_config(tmp_path / name)
    assert merge(said, got).config == merge(got, said).config  # they say nothing different
    assert (got.num_machines, got.machine_rank, got.debug) == (1, 0, False)
    if name.endswith("json"):
        json.loads((tmp_path / name).read_text())
    assert [path.name for path in (tmp_path / name).parent.iterdir() if "tmp" in path.name] == []


def test_a_written_file_can_be_read_by_accelerate(tmp_path: Path) -> None:
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    write_config(
        tmp_path / "a.yaml", LaunchConfig(distributed_type="MULTI_GPU", num_processes=2, dynamo_backend="eager")
    )
    got = config_args.load_config_from_file(str(tmp_path / "a.yaml"))
    assert (got.distributed_type, got.num_processes) == ("MULTI_GPU", 2)
    assert got.dynamo_config == {"dynamo_backend": "EAGER"}


def test_updating_converts_old_keys_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(
        "distributed_type: FSDP\nfp16: true\ndynamo_backend: INDUCTOR\nnum_processes: 8\n"
        "fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
    )
    update_config(path)
    new = yaml.safe_load(path.read_text())
    assert (new["distributed_type"], new["num_processes"], new["mixed_precision"]) == ("FSDP", 8, "fp16")
    assert new["dynamo_config"] == {"dynamo_backend": "INDUCTOR"}
    assert new["fsdp_config"] == {"fsdp_sharding_strategy": "FULL_SHARD"}
    assert (new["debug"], new["num_machines"]) == (False, 1)
    assert not {"fp16", "dynamo_backend"} & set(new)


def test_the_default_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert default_path() == tmp_path / "accelerate" / "default_config.yaml"
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate" / "default_config.json").write_text("{}")
    assert default_path() == tmp_path / "accelerate" / "default_config.json"
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_path() == tmp_path / "cache" / "huggingface" / "accelerate" / "default_config.yaml"

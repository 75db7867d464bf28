"""The launch config: what is read, what wins, and one line for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelerate_runtime.launch.config import ConfigError, LaunchConfig, LaunchPlan, read_config, resolve

FULL = """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_CPU
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: true
"""


def config(tmp_path: Path, text: str) -> LaunchConfig:
    path = tmp_path / "launch.yaml"
    path.write_text(text, encoding="utf-8")
    return read_config(path)


def plan(given: LaunchConfig, devices: int = 0) -> LaunchPlan:
    return resolve(given, lambda: devices)


def test_a_file_as_accelerate_writes_it(tmp_path: Path) -> None:
    got = plan(config(tmp_path, FULL))
    assert (got.processes, got.machines, got.port) == (2, 1, 0)
    assert got.environment["ACCELERATE_USE_CPU"] == "true"
    assert got.environment["ACCELERATE_MIXED_PRECISION"] == "bf16"


def test_json_is_yaml_too(tmp_path: Path) -> None:
    assert config(tmp_path, '{"distributed_type": "NO", "num_processes": 1}').num_processes == 1


def test_a_bare_no_means_no(tmp_path: Path) -> None:
    got = config(tmp_path, "distributed_type: NO\nmixed_precision: no\n")
    assert (got.distributed_type, got.mixed_precision) == ("NO", "no")


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    file = config(tmp_path, FULL)
    got = plan(LaunchConfig(num_processes=3, mixed_precision="no").over(file))
    assert got.processes == 3
    assert got.environment["ACCELERATE_MIXED_PRECISION"] == "no"
    assert "ACCELERATE_MIXED_PRECISION" not in plan(LaunchConfig()).environment


def test_processes_follow_the_devices_unless_said() -> None:
    assert plan(LaunchConfig(), devices=4).processes == 4
    assert plan(LaunchConfig(), devices=0).processes == 1
    assert plan(LaunchConfig(use_cpu=True), devices=4).processes == 1
    assert plan(LaunchConfig(num_processes=2, use_cpu=True), devices=4).processes == 2
    chosen = plan(LaunchConfig(gpu_ids="0,2"), devices=4)
    assert chosen.processes == 2
    assert chosen.environment["CUDA_VISIBLE_DEVICES"] == "0,2"


def test_machines_share_the_processes() -> None:
    got = plan(
        LaunchConfig(
            num_processes=4, num_machines=2, machine_rank=1, main_process_ip="10.0.0.1", main_process_port=29500
        )
    )
    assert got == LaunchPlan(2, 2, 1, "10.0.0.1", 29500, got.environment)


def test_threads_are_shared_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert "OMP_NUM_THREADS" in plan(LaunchConfig(num_processes=2)).environment
    assert "OMP_NUM_THREADS" not in plan(LaunchConfig(num_processes=1)).environment
    assert plan(LaunchConfig(num_cpu_threads_per_process=3)).environment["OMP_NUM_THREADS"] == "3"
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert "OMP_NUM_THREADS" not in plan(LaunchConfig(num_processes=2)).environment


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("distributed_type: NO\nnum_proceses: 2\n", "unknown key num_proceses"),
        ("a: 1\nb: 2\n", "unknown keys a, b"),
        ("num_processes: 0\n", "num_processes is 0; it must be a whole number, 1 or more"),
        ("num_processes: two\n", "num_processes is 'two'"),
        ("mixed_precision: fp9\n", "mixed_precision is 'fp9'; allowed are no, fp16, bf16"),
        ("mixed_precision: fp8\n", "'fp8' is not supported in this version"),
        ("distributed_type: MULTI\n", "distributed_type is 'MULTI'; allowed are NO, MULTI_CPU"),
        ("distributed_type: FSDP\n", "FSDP is not supported in this version"),
        ("fsdp_config: {fsdp_version: 2}\n", "fsdp_config: .* is not supported in this version"),
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


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (LaunchConfig(num_processes=3, num_machines=2), "2 machines cannot share evenly"),
        (LaunchConfig(num_processes=2, num_machines=2), "say where they meet"),
        (LaunchConfig(machine_rank=1), "ranks count from 0"),
    ],
)
def test_parts_that_do_not_fit(given: LaunchConfig, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        plan(given)

"""What a launch comes to: what wins, what follows from what, and one line for parts that do not fit."""

from __future__ import annotations

import pytest

from accelerate_runtime.launch.config import ConfigError, LaunchConfig, merge
from accelerate_runtime.launch.plan import LaunchPlan, describe, resolve

TWO_MACHINES = LaunchConfig(num_processes=4, num_machines=2, main_process_ip="10.0.0.1", main_process_port=29500)


def plan(given: LaunchConfig, devices: int = 0, file: LaunchConfig | None = None) -> LaunchPlan:
    return resolve(merge(given, file, "a.yaml"), lambda: devices)


def never() -> int:
    raise AssertionError("nothing depends on the devices")


def test_flags_win_over_the_file_and_the_file_over_defaults() -> None:
    file = LaunchConfig(num_processes=2, mixed_precision="bf16", use_cpu=True)
    got = plan(LaunchConfig(num_processes=3, mixed_precision="no"), file=file)
    assert got.processes == 3
    assert got.environment["ACCELERATE_MIXED_PRECISION"] == "no"
    assert got.environment["ACCELERATE_USE_CPU"] == "true"
    assert "ACCELERATE_MIXED_PRECISION" not in plan(LaunchConfig()).environment


def test_each_value_has_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    file = LaunchConfig(num_processes=2, mixed_precision="bf16")
    settings = merge(LaunchConfig(num_processes=3, use_cpu=True), file, "a.yaml")
    told = {name: (value, origin) for name, value, origin in describe(settings, resolve(settings, never))}
    assert told["num_processes"] == ("3", "flag --num_processes")
    assert told["use_cpu"] == ("True", "flag --cpu")
    assert told["mixed_precision"] == ("bf16", "a.yaml: mixed_precision")
    assert told["num_machines"] == ("1", "default")
    assert told["main_process_port"] == ("a free one", "default")


@pytest.fixture(autouse=True)
def no_word_about_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELERATE_USE_CPU")


def test_processes_follow_the_devices_unless_said() -> None:
    assert plan(LaunchConfig(), devices=4).processes == 4
    assert plan(LaunchConfig(), devices=0).processes == 1
    assert plan(LaunchConfig(use_cpu=True), devices=4).processes == 1
    assert plan(LaunchConfig(num_processes=2, use_cpu=True), devices=4).processes == 2
    assert plan(LaunchConfig(gpu_ids="0,2"), devices=4).processes == 2


@pytest.mark.parametrize("said", [LaunchConfig(), LaunchConfig(use_cpu=False), LaunchConfig(distributed_type="NO")])
def test_an_environment_for_the_cpu_starts_one_process(said: LaunchConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    settings = merge(said)
    got = resolve(settings, never)
    assert got.processes == 1
    assert ("use_cpu", "True", "environment: ACCELERATE_USE_CPU") in describe(settings, got)
    assert plan(LaunchConfig(num_processes=2), devices=4).processes == 2  # as many as one asks for


def test_devices_are_counted_only_where_they_matter() -> None:
    for given in (LaunchConfig(num_processes=1), LaunchConfig(use_cpu=True), LaunchConfig(distributed_type="NO")):
        assert resolve(merge(given), never).processes == 1


@pytest.mark.parametrize(
    ("kind", "variable"),
    [(None, "CUDA_VISIBLE_DEVICES"), ("MULTI_GPU", "CUDA_VISIBLE_DEVICES"), ("MULTI_XPU", "ZE_AFFINITY_MASK")],
)
def test_chosen_devices_go_by_the_vendors_variable(kind: str | None, variable: str) -> None:
    got = plan(LaunchConfig(gpu_ids="0, 2", distributed_type=kind), devices=4)
    assert got.environment[variable] == "0,2"


def test_missing_devices_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = LaunchConfig(distributed_type="MULTI_GPU", num_processes=2)
    assert "GPUs were asked for" in plan(asked, devices=0).warnings[0]
    assert plan(asked, devices=2).warnings == ()
    assert plan(LaunchConfig(), devices=0).warnings == ()
    monkeypatch.setenv("ACCELERATE_USE_CPU", "on")
    assert plan(asked, devices=0).warnings == ()
    monkeypatch.setenv("ACCELERATE_USE_CPU", "perhaps")
    with pytest.raises(ConfigError, match="ACCELERATE_USE_CPU='perhaps' is neither true nor false"):
        plan(asked, devices=0)


def test_machines_share_the_processes() -> None:
    got = plan(LaunchConfig(machine_rank=1), file=TWO_MACHINES)
    assert (got.processes, got.machines, got.machine_rank) == (2, 2, 1)
    assert (got.address, got.port, got.rendezvous_options) == ("10.0.0.1", 29500, {"timeout": 900.0})
    patient = plan(LaunchConfig(rdzv_conf={"timeout": "5", "read_timeout": "7"}), file=TWO_MACHINES)
    assert patient.rendezvous_options == {"timeout": 5.0, "read_timeout": "7"}


def test_only_what_must_be_watched_is() -> None:
    assert not plan(LaunchConfig(num_processes=1)).watched
    for reason in ({"num_processes": 2}, {"max_restarts": 1}, {"log_dir": "x"}, {"tee": "3"}):
        assert plan(LaunchConfig(use_cpu=True, **reason)).watched  # type: ignore[arg-type]


def test_threads_are_shared_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert "OMP_NUM_THREADS" in plan(LaunchConfig(num_processes=2)).environment
    assert "OMP_NUM_THREADS" not in plan(LaunchConfig(num_processes=1)).environment
    assert plan(LaunchConfig(num_cpu_threads_per_process=3)).environment["OMP_NUM_THREADS"] == "3"
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert "OMP_NUM_THREADS" not in plan(LaunchConfig(num_processes=2)).environment


def test_the_processes_are_told_by_accelerates_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    got = plan(
        LaunchConfig(
            use_cpu=True,
            debug=True,
            enable_cpu_affinity=True,
            gradient_accumulation_steps=4,
            dynamo_backend="inductor",
            dynamo_mode="max-autotune",
            dynamo_use_regional_compilation=True,
        )
    )
    assert got.environment == {
        "ACCELERATE_USE_CPU": "true",
        "ACCELERATE_DEBUG_MODE": "true",
        "ACCELERATE_CPU_AFFINITY": "true",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4",
        "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR",
        "ACCELERATE_DYNAMO_MODE": "max-autotune",
        "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "true",
    }
    assert plan(LaunchConfig(dynamo_backend="no")).environment == {"ACCELERATE_DYNAMO_BACKEND": "NO"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (LaunchConfig(num_processes=3, num_machines=2), "2 machines cannot share evenly"),
        (LaunchConfig(num_processes=2, num_machines=2), "say where they meet"),
        (LaunchConfig(machine_rank=1), "ranks count from 0"),
        (LaunchConfig(gpu_ids="0", num_processes=2), "gpu_ids 0 are too few for 2 processes"),
        (LaunchConfig(dynamo_use_dynamic=True), "dynamo_use_dynamic has no effect without a dynamo_backend"),
        (LaunchConfig(rdzv_conf={"timeout": "soon"}), "timeout is 'soon'; it must be seconds"),
    ],
)
def test_parts_that_do_not_fit(given: LaunchConfig, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        plan(given)


def test_what_the_file_leaves_to_the_flags() -> None:
    with pytest.raises(ConfigError, match=r"a\.yaml: num_processes is -1: say how many with --num_processes"):
        plan(LaunchConfig(), file=LaunchConfig(num_processes=-1))
    assert plan(LaunchConfig(num_processes=2), file=LaunchConfig(num_processes=-1)).processes == 2


def test_an_engine_of_the_file_is_refused_unless_a_flag_overrules_it() -> None:
    file = LaunchConfig(distributed_type="TPU", num_processes=2)
    with pytest.raises(ConfigError, match=r"a\.yaml: distributed_type: TPU is not supported in this version"):
        plan(LaunchConfig(), file=file)
    assert plan(LaunchConfig(distributed_type="MULTI_GPU", use_cpu=False), devices=2, file=file).processes == 2

"""The words after `launch`: what they mean, and one line for those that cannot be."""

from __future__ import annotations

import pytest

from accelerate_runtime.launch.config import ConfigError
from accelerate_runtime.launch.options import Request, parse


def given(line: str) -> Request:
    return parse(line.split())


def test_underscores_and_dashes_are_the_same() -> None:
    for line in (
        "--num_processes 2 --dynamo_use_fullgraph --main_process_ip=1.2.3.4 x.py",
        "--num-processes 2 --dynamo-use-fullgraph --main-process-ip=1.2.3.4 x.py",
    ):
        flags = given(line).flags
        assert (flags.num_processes, flags.dynamo_use_fullgraph, flags.main_process_ip) == (2, True, "1.2.3.4")


def test_what_follows_the_script_is_its_own() -> None:
    got = given("--cpu x.py --cpu --num_processes 3 -m -- --help")
    assert got.script == "x.py"
    assert got.script_args == ["--cpu", "--num_processes", "3", "-m", "--", "--help"]
    assert got.flags.num_processes is None
    assert not got.module


def test_what_is_not_said_is_none() -> None:
    flags = given("x.py").flags
    assert {name: value for name, value in vars(flags).items() if value is not None} == {}


def test_each_option_reaches_the_config() -> None:
    flags = given(
        "--multi_gpu --mixed_precision fp8 --num_machines 2 --machine_rank 1 --main_process_port 1 --gpu_ids 0,1 "
        "--debug --enable_cpu_affinity --num_cpu_threads_per_process 3 --gradient_accumulation_steps 4 "
        "--dynamo_backend INDUCTOR --dynamo_mode max-autotune --dynamo_use_dynamic --dynamo_use_regional_compilation "
        "--rdzv_backend c10d --rdzv_conf timeout=5,read_timeout=6 --max_restarts 2 --monitor_interval 0.5 --role r "
        "-t 3 --log_dir d --same_network x.py"
    ).flags
    assert {name: value for name, value in vars(flags).items() if value is not None} == {
        "distributed_type": "MULTI_GPU",
        "use_cpu": False,
        "mixed_precision": "fp8",
        "num_machines": 2,
        "machine_rank": 1,
        "main_process_port": 1,
        "gpu_ids": "0,1",
        "debug": True,
        "enable_cpu_affinity": True,
        "num_cpu_threads_per_process": 3,
        "gradient_accumulation_steps": 4,
        "dynamo_backend": "inductor",
        "dynamo_mode": "max-autotune",
        "dynamo_use_dynamic": True,
        "dynamo_use_regional_compilation": True,
        "rdzv_backend": "c10d",
        "rdzv_conf": {"timeout": "5", "read_timeout": "6"},
        "max_restarts": 2,
        "monitor_interval": 0.5,
        "role": "r",
        "tee": "3",
        "log_dir": "d",
    }


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "no script was given"),
        ("--cpu", "no script was given"),
        ("--num_processes 0 x.py", "num_processes is 0; it must be a whole number, 1 or more"),
        ("--num-processes two x.py", "--num-processes: invalid int value: 'two'"),
        ("--mixed_precision half x.py", "mixed_precision is 'half'; allowed are no, fp16, bf16, fp8"),
        ("--main_process_port 70000 x.py", "ports end at 65535"),
        ("--gpu_ids 0,,1 x.py", "gpu_ids is '0,,1'"),
        ("--gpu_ids 0,0 x.py", "gpu_ids is '0,0'"),
        ("--monitor_interval 0 x.py", "monitor_interval is 0.0; it must be more than 0"),
        ("--rdzv_conf timeout x.py", "'timeout' is not of the form key=value"),
        ("--rdzv_backend etcd x.py", "rdzv_backend is 'etcd'; allowed are static, c10d"),
        ("--cpu --multi_gpu x.py", "--cpu and --multi_gpu cannot go together"),
        ("--cpu --gpu_ids 0 x.py", "--cpu and --gpu_ids cannot go together"),
        ("-m --no_python x.py", "--module and --no_python cannot go together"),
        ("--nonsense x.py", "No such option: --nonsense"),
        ("--num_proc 2 x.py", "No such option: --num_proc"),
        ("--use_fsdp --multi_gpu x.py", "--use_fsdp and --multi_gpu cannot go together"),
        ("--use_megatron_lm --use_fsdp x.py", "--use_fsdp and --use_megatron_lm cannot go together"),
        ("--fp8_backend te x.py", "fp8 on the command line is not supported in this version"),
        ("--tpu_use_cluster x.py", "starting processes on TPU pods is not supported in this version"),
    ],
)
def test_what_cannot_be_is_one_line(line: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        given(line)
    assert told in str(error.value)
    assert "\n" not in str(error.value)

"""The constructor: what it takes, what it refuses, and how it says so."""

from __future__ import annotations

from datetime import timedelta

import pytest

import accelerate_runtime
from accelerate_runtime import (
    Accelerator,
    AutocastKwargs,
    DataLoaderConfiguration,
    DDPCommunicationHookType,
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    PartialState,
    ProjectConfiguration,
)


def test_defaults() -> None:
    accelerator = Accelerator()
    assert accelerator.device_placement
    assert accelerator.mixed_precision == "no"
    assert accelerator.gradient_accumulation_steps == 1
    assert accelerator.sync_gradients
    assert accelerator.even_batches
    assert not accelerator.split_batches
    assert accelerator.scaler is None
    assert accelerator.project_dir is None
    assert accelerator.step_scheduler_with_optimizer


@pytest.mark.parametrize(
    "name",
    ["megatron_lm_plugin",
     ],
)  # fmt: skip
def test_what_is_not_there_yet_is_refused_by_name(name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"{name}='x'.*not supported in this version"):
        Accelerator(**{name: "x"})  # type: ignore[arg-type]


def test_an_unknown_argument_is_named() -> None:
    with pytest.raises(TypeError, match="gradient_accumulation_step"):
        Accelerator(gradient_accumulation_step=2)  # type: ignore[call-arg]


def test_methods_that_are_not_there_yet_say_so() -> None:
    accelerator = Accelerator()
    assert not hasattr(accelerator, "lomo_backward")
    with pytest.raises(NotImplementedError, match=r"lomo_backward.*this version"):
        accelerator.lomo_backward("x")
    with pytest.raises(NotImplementedError, match=r"deepspeed_ulysses_dl_adapter: sequence parallelism .*cp_size="):
        accelerator.deepspeed_ulysses_dl_adapter(None, None)
    with pytest.raises(AttributeError, match="no attribute 'savestate'"):
        accelerator.savestate  # noqa: B018


@pytest.mark.parametrize("mode", ["fp32", "FP16", "", "half"])
def test_an_unknown_precision_is_named_with_those_allowed(mode: str) -> None:
    with pytest.raises(ValueError, match=f"mixed_precision='{mode}': allowed are 'no', 'fp16', 'bf16' and 'fp8'"):
        Accelerator(mixed_precision=mode)


def test_precision_comes_from_the_environment_unless_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    assert Accelerator().mixed_precision == "bf16"
    assert Accelerator(mixed_precision="no").mixed_precision == "no"


def test_split_batches_in_the_constructor_is_honoured() -> None:
    assert Accelerator(split_batches=True).split_batches
    config = DataLoaderConfiguration(split_batches=True)
    assert Accelerator(dataloader_config=config, split_batches=True).split_batches
    with pytest.raises(ValueError, match="split_batches=False was passed beside dataloader_config"):
        Accelerator(dataloader_config=config, split_batches=False)


def test_handlers_are_checked() -> None:
    handlers = [DistributedDataParallelKwargs(), GradScalerKwargs(), AutocastKwargs(), InitProcessGroupKwargs()]
    Accelerator(kwargs_handlers=handlers)
    with pytest.raises(ValueError, match="two objects of GradScalerKwargs"):
        Accelerator(kwargs_handlers=[GradScalerKwargs(), GradScalerKwargs()])
    with pytest.raises(TypeError, match=r"\{'find_unused_parameters': True\} is not supported"):
        Accelerator(kwargs_handlers=[{"find_unused_parameters": True}])


def test_communication_hooks_are_checked() -> None:
    handler = DistributedDataParallelKwargs(comm_hook="fp16", static_graph=True)
    assert handler.comm_hook is DDPCommunicationHookType.FP16
    assert handler.to_kwargs() == {"static_graph": True}
    assert "comm_hook" not in handler.to_dict()
    with pytest.raises(ValueError, match=r"comm_hook='int8'.*allowed are 'no', 'fp16'"):
        DistributedDataParallelKwargs(comm_hook="int8")
    with pytest.raises(ValueError, match=r"comm_wrapper='power_sgd'.*allowed are 'no', 'fp16', 'bf16'$"):
        DistributedDataParallelKwargs(comm_hook="fp16", comm_wrapper="power_sgd")
    with pytest.raises(NotImplementedError, match=r"'batched_power_sgd'.*pass comm_hook='power_sgd'"):
        DistributedDataParallelKwargs(comm_hook=DDPCommunicationHookType.BATCHED_POWER_SGD)
    with pytest.raises(ValueError, match=r"comm_wrapper='bf16'.*there is none: pass comm_hook='bf16'"):
        DistributedDataParallelKwargs(comm_wrapper="bf16")
    with pytest.raises(ValueError, match=r"comm_state_option=.*is of comm_hook='power_sgd', not of 'fp16'"):
        DistributedDataParallelKwargs(comm_hook="fp16", comm_state_option={"matrix_approximation_rank": 2})


def test_handlers_pass_on_what_was_changed() -> None:
    assert DistributedDataParallelKwargs(static_graph=True).to_kwargs() == {"static_graph": True}
    assert InitProcessGroupKwargs(timeout=timedelta(seconds=9)).to_kwargs() == {"timeout": timedelta(seconds=9)}
    assert GradScalerKwargs().to_kwargs() == {}
    assert AutocastKwargs(enabled=False).to_dict() == {
        "enabled": False,
        "cache_enabled": None,
        "keep_output_dtype": False,
    }
    with pytest.raises(TypeError, match="pass a datetime"):
        InitProcessGroupKwargs(timeout=9)  # type: ignore[arg-type]


def test_accumulation_is_said_once() -> None:
    with pytest.raises(ValueError, match="not both"):
        Accelerator(gradient_accumulation_steps=2, gradient_accumulation_plugin=GradientAccumulationPlugin())


def test_the_projects_folder_may_stand_in_either_place() -> None:
    assert Accelerator(project_dir="runs").logging_dir == "runs"
    config = ProjectConfiguration(logging_dir="logs")
    accelerator = Accelerator(project_dir="runs", project_config=config)
    assert (accelerator.project_dir, accelerator.logging_dir) == ("runs", "logs")


def test_several_processes_need_a_place_to_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="RANK, MASTER_ADDR, MASTER_PORT is not set: start the script with"):
        Accelerator()


def test_a_flag_in_the_environment_must_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "maybe")
    with pytest.raises(ValueError, match="ACCELERATE_USE_CPU='maybe'"):
        Accelerator()


def test_the_state_is_the_same_with_and_without_an_accelerator() -> None:
    state = PartialState()
    assert state.device == Accelerator().device
    assert state.num_processes == 1
    assert state.backend is None
    assert "Num processes: 1" in repr(state)
    with state.split_between_processes([1, 2]) as part:
        assert part == [1, 2]


def test_the_package_knows_its_names() -> None:
    for name in accelerate_runtime.__all__:
        assert hasattr(accelerate_runtime, name)
    assert set(accelerate_runtime.__all__) <= set(dir(accelerate_runtime))
    with pytest.raises(AttributeError, match="no attribute 'Acelerator'"):
        accelerate_runtime.Acelerator  # noqa: B018

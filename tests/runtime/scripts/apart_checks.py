"""Checks of what two processes do apart and together: local SGD, logs, compiled models, the mesh."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from both import accelerator, everyone, me
from torch import nn

from accelerate_runtime import Accelerator, ParallelismConfig
from accelerate_runtime.local_sgd import LocalSGD
from accelerate_runtime.logging import get_logger
from accelerate_runtime.utils import TorchDynamoPlugin, has_compiled_regions


def net() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(2, 1)


def same(tensor: torch.Tensor) -> bool:
    theirs = accelerator.gather(tensor.detach()[None])
    return torch.equal(theirs[0], theirs[1])


def check_local_sgd_averages_now_and_then() -> None:
    model = nn.Sequential(net(), nn.BatchNorm1d(1))
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    weight, mean = model.module[0].weight, model.module[1].running_mean
    equal = []
    with LocalSGD(accelerator, model, local_sgd_steps=3) as local_sgd:
        for _ in range(5):
            accelerator.backward(model(torch.randn(4, 2) * (me + 1)).pow(3).mean())
            optimizer.step()
            optimizer.zero_grad()
            local_sgd.step()
            equal.append((same(weight), same(mean)))
    assert equal == [(False, False), (False, False), (True, True), (False, False), (False, False)]
    assert same(weight)
    accelerator.backward(model(torch.randn(4, 2) * (me + 1)).pow(3).mean())
    assert same(weight.grad)  # exchanged again
    with pytest.raises(ValueError, match="local_sgd_steps=0"):
        LocalSGD(accelerator, model, local_sgd_steps=0)
    with LocalSGD(accelerator, model, local_sgd_steps=None, enabled=False) as off:
        off.step()


def check_logs_come_once_or_in_order() -> None:
    logger, records = get_logger("both", "INFO"), []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    keep = Keep()
    logger.logger.addHandler(keep)
    logger.info("main")
    logger.info("each", main_process_only=False)
    logger.info("turn", in_order=True)
    logger.logger.removeHandler(keep)
    assert everyone(records) == [
        ["[RANK 0] main", "[RANK 0] each", "[RANK 0] turn"],
        ["[RANK 1] each", "[RANK 1] turn"],
    ]


def check_compiled_models_train_alike() -> None:
    def train(accelerator: Accelerator) -> Any:
        model = nn.Sequential(net(), nn.Tanh())
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for number in range(4):
            with accelerator.accumulate(model):
                accelerator.backward(model(torch.ones(2, 2) * (me + number)).pow(2).mean())
                optimizer.step()
                optimizer.zero_grad()
        assert list(accelerator.get_state_dict(model)) == ["0.weight", "0.bias"]
        return accelerator.unwrap_model(model)

    plain = train(Accelerator(gradient_accumulation_steps=2))
    for backend in ("eager", "aot_eager"):
        plugin = TorchDynamoPlugin(backend=backend, fullgraph=True)
        compiled = train(Accelerator(gradient_accumulation_steps=2, dynamo_plugin=plugin))
        assert has_compiled_regions(compiled)
        assert torch.allclose(compiled[0].weight, plain[0].weight, atol=1e-6)
        assert same(compiled[0].weight)


def check_copies_of_a_model_have_a_mesh() -> None:
    both = Accelerator(parallelism_config=ParallelismConfig(dp_replicate_size=2))
    assert both.torch_device_mesh.mesh_dim_names == ("dp_replicate",)
    assert (both.data_parallel_rank, both.tensor_parallel_rank) == (me, 0)
    with pytest.raises(ValueError, match="takes 3 processes, but there are 2"):
        Accelerator(parallelism_config=ParallelismConfig(dp_replicate_size=3))
    assert Accelerator(parallelism_config=ParallelismConfig()).data_parallel_rank == me

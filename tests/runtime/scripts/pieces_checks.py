"""What a script writes by itself of a model that is spread over two processes: whole, or an error; never one's part."""

from __future__ import annotations

import copy
import io
import logging
import pickle
import time
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from both import FOLDER, everyone, me
from torch import nn
from torch.distributed.checkpoint import state_dict as dcp_state_dict
from torch.utils.data import DataLoader, TensorDataset

from accelerate_runtime import Accelerator, FullyShardedDataParallelPlugin, ParallelismConfig, division, waiting

ENGINES: dict[str, dict[str, Any]] = {
    "fsdp": {"fsdp_plugin": FullyShardedDataParallelPlugin()},
    "tensor": {"parallelism_config": ParallelismConfig(tp_size=2)},
    "pipeline": {"parallelism_config": ParallelismConfig(pp_size=2)},
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def trained(engine: str) -> tuple[Accelerator, Any, Any]:
    torch.manual_seed(0)
    accelerator, model = Accelerator(**ENGINES[engine]), Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for (x,) in loader:
        accelerator.backward(model(x).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    return accelerator, model, optimizer


def check_files_of_one_process_get_no_parts() -> None:
    for engine in ENGINES:
        accelerator, model, _ = trained(engine)
        try:
            inner = accelerator.unwrap_model(model)
            with pytest.raises((ValueError, RuntimeError), match=r"accelerator\.get_state_dict\(model\)"):
                torch.save({"model": inner.state_dict()}, io.BytesIO())
            for data in (inner, [inner], dict(inner.named_parameters())):
                with pytest.raises(ValueError, match=r"torch\.save\(\).*accelerator\.get_state_dict\(model\)"):
                    torch.save(data, io.BytesIO())
                with pytest.raises(ValueError, match=r"pickle.*accelerator\.get_state_dict\(model\)"):
                    pickle.dumps(data)
                with pytest.raises(ValueError, match=r"^save\(\).*accelerator\.get_state_dict\(model\)"):
                    accelerator.save(data, FOLDER / "parts.pt")
            weights = accelerator.get_state_dict(model)
            accelerator.save(weights, FOLDER / f"{engine}.pt")
            if me == 0:
                Net().load_state_dict(torch.load(FOLDER / f"{engine}.pt"))
        finally:
            division.forget()
    assert not (FOLDER / "parts.pt").exists()


def check_parts_go_to_others_and_into_copies_all_the_same() -> None:
    _, model, _ = trained("tensor")
    twin = copy.deepcopy(model)
    assert all(one.equal(other) for one, other in zip(model.parameters(), twin.parameters(), strict=True))
    with pytest.raises(ValueError, match="shards"):
        torch.save(twin.state_dict(), io.BytesIO())
    division.forget()
    _, model, _ = trained("pipeline")
    sent = everyone(dict(model.named_parameters()))
    assert len({*sent[0], *sent[1]}) == len(sent[0]) + len(sent[1]) == len(list(Net().parameters()))
    division.forget()


def check_torchs_distributed_checkpoints_get_shards_of_models_and_optimizers() -> None:
    for engine in ("fsdp", "tensor"):
        _, model, optimizer = trained(engine)
        try:
            weights, state = dcp_state_dict.get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": state}, checkpoint_id=FOLDER / f"dcp-{engine}")
            moments = [entry["exp_avg"].full_tensor() for entry in optimizer.state.values()]
            _, other, its = trained(engine)
            its.step()
            weights, state = dcp_state_dict.get_state_dict(other, its)
            for entry in state["state"].values():
                entry["exp_avg"].zero_()
            dcp.load({"model": weights, "optimizer": state}, checkpoint_id=FOLDER / f"dcp-{engine}")
            dcp_state_dict.set_state_dict(other, its, model_state_dict=weights, optim_state_dict=state)
            found = [entry["exp_avg"].full_tensor() for entry in its.state.values()]
            assert len(found) == len(moments) > 0
            assert all(one.equal(two) for one, two in zip(found, moments, strict=True))
        finally:
            division.forget()
    _, model, optimizer = trained("pipeline")
    try:
        with pytest.raises(RuntimeError, match=r"stages of a pipeline: use accelerator\.save_state"):
            dcp_state_dict.get_optimizer_state_dict(model, optimizer)
    finally:
        division.forget()


class Listening(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def check_a_process_that_gathers_alone_says_so_before_the_timeout() -> None:
    listening, patience = Listening(), waiting._PATIENCE
    waiting.logger.addHandler(listening)
    waiting._PATIENCE = 0.3
    try:
        for engine in ("fsdp", "pipeline"):
            accelerator, model, optimizer = trained(engine)
            for name, gather, arguments in (
                ("get_state_dict", accelerator.get_state_dict, (model,)),
                ("optimizer.state_dict()", optimizer.state_dict, ()),
            ):
                accelerator.wait_for_everyone()
                if me == 1:
                    time.sleep(1)
                gather(*arguments)
                if me == 0:
                    (said,) = listening.said
                    assert f"in {name} (pieces_checks.py:" in said
                    assert "every process must call it, not only the main one" in said
                listening.said.clear()
            division.forget()
    finally:
        waiting.logger.removeHandler(listening)
        waiting._PATIENCE = patience

"""Models compiled by prepare(): in place, so that they stay what they were."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from accelerate_runtime import Accelerator
from accelerate_runtime.utils import (
    DynamoBackend,
    PrecisionType,
    TorchDynamoPlugin,
    compile_regions,
    extract_model_from_parallel,
    has_compiled_regions,
    is_compiled_module,
)
from accelerate_runtime.vocabulary import DYNAMO_BACKENDS, PRECISIONS


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x).tanh()
        return self.head(x)  # type: ignore[no-any-return]


class Graphs:
    """A backend that counts what it is given."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        self.count += 1
        return graph.forward


@pytest.fixture(autouse=True)
def nothing_compiled_before() -> None:
    torch.compiler.reset()


def train(accelerator: Accelerator, model: nn.Module) -> list[torch.Tensor]:
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        accelerator.backward(model(torch.ones(2, 4)).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_compiled_model_trains_alike(precision: str) -> None:
    plain = train(Accelerator(mixed_precision=precision), net())
    plugin = TorchDynamoPlugin(backend="aot_eager", fullgraph=True)
    compiled = train(Accelerator(mixed_precision=precision, dynamo_plugin=plugin), net())
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(plain, compiled, strict=True))


def test_it_is_the_same_model_with_the_same_names() -> None:
    accelerator, model = Accelerator(dynamo_backend="eager"), net()
    names = list(model.state_dict())
    prepared = accelerator.prepare(model)
    prepared(torch.ones(1, 4))
    assert prepared is model
    assert has_compiled_regions(prepared)
    assert not is_compiled_module(prepared)
    assert list(accelerator.get_state_dict(prepared)) == names
    assert accelerator.unwrap_model(prepared, keep_torch_compile=False) is model
    pickle.loads(pickle.dumps(model))(torch.ones(1, 4))
    copy.deepcopy(model)(torch.ones(1, 4))


def test_something_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = Graphs()
    monkeypatch.setattr(TorchDynamoPlugin, "to_kwargs", lambda self: {"backend": graphs})
    model = Accelerator(dynamo_backend="eager").prepare(net())
    for _ in range(3):
        model(torch.ones(1, 4))
    assert graphs.count == 1
    Accelerator(dynamo_backend="no").prepare(net())(torch.ones(1, 4))
    assert graphs.count == 1


def test_a_model_that_the_script_compiled_stays_as_it_is() -> None:
    ours = torch.compile(net(), backend="eager")
    assert Accelerator(dynamo_backend="eager").prepare(ours) is ours
    assert ours._compiled_call_impl is None


def test_repeated_blocks_are_compiled_one_by_one() -> None:
    model, graphs = Blocks(), Graphs()
    names, expected = list(model.state_dict()), model(torch.ones(1, 4))
    assert compile_regions(model, backend=graphs) is model
    with torch.no_grad():
        assert torch.equal(model(torch.ones(1, 4)), expected)
    assert list(model.state_dict()) == names
    assert model._compiled_call_impl is None
    assert all(block._compiled_call_impl is not None for block in [*model.blocks, model.head])
    assert graphs.count == 2  # a block's graph serves all of them, and the head has its own
    plain = compile_regions(net(), backend="eager")
    assert plain._compiled_call_impl is not None


def test_regions_may_be_asked_for() -> None:
    plugin = TorchDynamoPlugin(backend="eager", use_regional_compilation=True)
    model = Accelerator(dynamo_plugin=plugin).prepare(Blocks())
    assert model._compiled_call_impl is None
    assert has_compiled_regions(model)


def test_a_wrapper_of_the_scripts_own_comes_off_or_is_made_anew() -> None:
    model = net()
    parallel = nn.DataParallel(model)
    compiled = torch.compile(parallel, backend="eager")
    kept = extract_model_from_parallel(compiled)
    assert is_compiled_module(kept)
    assert kept._orig_mod is model
    assert compiled._orig_mod is parallel  # what is being trained stays as it is
    assert torch.equal(kept(torch.ones(1, 4)), model(torch.ones(1, 4)))
    assert extract_model_from_parallel(compiled, keep_torch_compile=False) is model
    inner = torch.compile(model, backend="eager")
    assert extract_model_from_parallel(nn.DataParallel(inner)) is inner
    assert extract_model_from_parallel(inner) is inner
    assert extract_model_from_parallel(nn.DataParallel(inner), keep_torch_compile=False) is model


def test_parts_are_unwrapped_too() -> None:
    inner = nn.Linear(2, 2)
    model = nn.Sequential(nn.DataParallel(inner), nn.Sequential(nn.DataParallel(nn.Linear(2, 2))))
    assert extract_model_from_parallel(model, recursive=True) is model
    assert list(model.state_dict()) == ["0.weight", "0.bias", "1.0.weight", "1.0.bias"]


def test_the_environment_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "AOT_EAGER")
    monkeypatch.setenv("ACCELERATE_DYNAMO_MODE", "reduce-overhead")
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_FULLGRAPH", "true")
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_DYNAMIC", "no")
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "1")
    plugin = TorchDynamoPlugin()
    expected = {"backend": "aot_eager", "mode": "reduce-overhead", "fullgraph": True, "dynamic": False}
    assert plugin.to_kwargs() == expected
    assert plugin.use_regional_compilation
    assert Accelerator().state.dynamo_plugin == plugin
    assert TorchDynamoPlugin(backend="no").to_kwargs() == {k: v for k, v in expected.items() if k != "backend"}


def test_arguments_are_checked() -> None:
    assert TorchDynamoPlugin().backend == DynamoBackend.NO
    with pytest.raises(ValueError, match="dynamo backend 'turbo': allowed are no, eager"):
        Accelerator(dynamo_backend="turbo")
    with pytest.raises(ValueError, match="dynamo mode 'fast': allowed are default, reduce-overhead"):
        TorchDynamoPlugin(mode="fast")
    with pytest.raises(ValueError, match="not both"):
        Accelerator(dynamo_backend="eager", dynamo_plugin=TorchDynamoPlugin())
    with pytest.raises(TypeError, match="pass a TorchDynamoPlugin"):
        Accelerator(dynamo_plugin="eager")  # type: ignore[arg-type]


def test_the_launcher_knows_the_same_backends() -> None:
    assert [backend.lower() for backend in DynamoBackend.list()] == list(DYNAMO_BACKENDS)
    assert set(PrecisionType.list()) == set(PRECISIONS)

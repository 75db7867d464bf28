"""Inference by a pipeline over two processes gives what one process computes, to the last process or to all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from both import me
from torch import nn

from accelerate_runtime import prepare_pippy


class Scorer(nn.Module):
    """Gives a dict; its head shares the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.ReLU()) for _ in range(4))
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor, shift: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x)
        return {"scores": self.head(x) if shift is None else self.head(x) + shift}


WORDS = torch.randint(0, 20, (5, 3), generator=torch.Generator().manual_seed(1))
SHIFT = torch.arange(5.0).view(5, 1, 1)


def scorer(trainable: bool = True) -> Any:
    torch.manual_seed(0)
    return Scorer().requires_grad_(trainable)


def check_inference_gives_what_one_process_computes() -> None:
    expected = scorer().eval()(WORDS, SHIFT)["scores"].detach()
    for gather in (False, True):
        model = prepare_pippy(scorer(trainable=gather), example_args=(WORDS,), gather_output=gather)
        output = model(WORDS, shift=SHIFT) if me == 0 else model()  # the main process's inputs count
        if me == 0 and not gather:
            assert output is None
        else:
            torch.testing.assert_close(output["scores"], expected)
            assert not output["scores"].requires_grad
        assert len(list(model.parameters())) < len(list(Scorer().parameters()))


def check_a_model_is_cut_where_it_is_said() -> None:
    model = prepare_pippy(scorer(), split_points=["blocks.3"], num_chunks=5, gather_output=True)
    assert model.hf_split_points == ["blocks.3"]
    torch.testing.assert_close(model(WORDS)["scores"], scorer().eval()(WORDS)["scores"].detach())
    with pytest.raises(ValueError, match=r"no_split_module_classes=.*'blocks\.2\.0'.* is inside of 'blocks\.2'"):
        prepare_pippy(scorer(), ["blocks.2.0"], no_split_module_classes=["Sequential"])
    with pytest.raises(ValueError, match=r"it has .*blocks"):
        prepare_pippy(scorer(), ["nothing"])

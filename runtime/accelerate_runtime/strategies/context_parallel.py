"""Context parallelism: each process has a part of every sequence, and attention goes round.

Sequences are cut, and on accelerators attention is done, by torch's `context_parallel`; on the CPU, for which that has
no rule, attention goes through the same ring with the CPU's kernel.

Source: Ring Attention, https://arxiv.org/abs/2310.01889
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.distributed.tensor.experimental._context_parallel import _attention as ring
from torch.nn import functional

Attention = Callable[..., torch.Tensor]

_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_cpu_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


@contextmanager
def split_sequences(
    mesh: DeviceMesh,
    rotation: str,
    buffers: Sequence[torch.Tensor],
    dims: Sequence[int],
    forget: set[torch.Tensor],
) -> Iterator[None]:
    """A context in which `buffers` hold this process's part of each sequence, and attention reaches the other parts.

    Of `n` processes each has the parts `i` and `2n - 1 - i` of `2n`, so that causal attention costs all the same.

    Args:
        mesh: of one dimension, the processes that share the sequences.
        rotation: how keys and values go round, "allgather" or "alltoall".
        buffers: tensors with a sequence dimension, changed in place: inputs, labels, positions.
        dims: the sequence dimension of each.
        forget: those of `buffers` that need not be whole again afterwards.

    Raises:
        ValueError: there are no buffers, not as many as `dims`, or sequences that the processes do not divide.
        RuntimeError: no attention was computed inside, so that no process saw more than its own part.
    """
    _check(mesh, buffers, dims)
    set_rotate_method(rotation)
    calls = 0

    with context_parallel(mesh, buffers=list(buffers), buffer_seq_dims=list(dims), no_restore_buffers=forget):
        within: Attention = functional.scaled_dot_product_attention
        if mesh.device_type == "cpu":
            within = functools.partial(_around, mesh)

        def attention(
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            attn_mask: torch.Tensor | None = None,
            dropout_p: float = 0.0,
            is_causal: bool = False,
            **options: Any,
        ) -> torch.Tensor:
            nonlocal calls
            calls += 1
            if attn_mask is not None or not is_causal:
                raise ValueError(
                    "context parallelism splits sequences over processes, which goes with causal attention only: call "
                    "scaled_dot_product_attention(..., is_causal=True) without attn_mask, or set cp_size=1."
                )
            return within(query, key, value, dropout_p=dropout_p, is_causal=True, **options)

        outer = functional.scaled_dot_product_attention
        functional.scaled_dot_product_attention = attention  # type: ignore[assignment]
        try:
            yield
        finally:
            functional.scaled_dot_product_attention = outer
    if not calls:
        raise RuntimeError(
            "maybe_context_parallel: nothing called torch.nn.functional.scaled_dot_product_attention inside the "
            "context, so each process saw its own part of the sequences only. Have the model compute attention by that "
            "function (called as an attribute of torch.nn.functional), run forward and backward inside, or set "
            "cp_size=1."
        )


def _check(mesh: DeviceMesh, buffers: Sequence[torch.Tensor], dims: Sequence[int]) -> None:
    if not buffers or len(buffers) != len(dims):
        raise ValueError(
            f"maybe_context_parallel was given {len(buffers)} buffers and {len(dims)} buffer_seq_dims: context "
            "parallelism needs each tensor with a sequence dimension (inputs, labels, positions), and which that is."
        )
    parts = 2 * mesh.size()
    for number, (buffer, dim) in enumerate(zip(buffers, dims, strict=True)):
        if buffer.shape[dim] % parts:
            raise ValueError(
                f"maybe_context_parallel: buffers[{number}] of shape {list(buffer.shape)} has sequences of "
                f"{buffer.shape[dim]} in dimension {dim}, which cannot be cut into {parts} parts (two for each of "
                f"{mesh.size()} processes): pad them to a multiple of {parts}."
            )


def _around(
    mesh: DeviceMesh,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = True,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention of this process's queries to the keys of all, on the CPU."""
    if dropout_p:
        raise ValueError("context parallelism on the CPU has no dropout in attention: set it to 0.")
    if enable_gqa:
        heads = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(heads, -3), value.repeat_interleave(heads, -3)
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    out: torch.Tensor = _Ring.apply(query, key, value, scale, mesh.get_group())  # type: ignore[no-untyped-call]
    return out


class _Ring(torch.autograd.Function):
    """Causal attention, by torch's ring over the kernel of the CPU."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None, group: Any
    ) -> torch.Tensor:
        out, weights, *_ = ring._templated_ring_attention(
            group,
            2,
            _cpu,
            query,
            key,
            value,
            is_causal=True,
            scale=scale,
        )
        ctx.save_for_backward(query, key, value, out, weights)
        ctx.scale, ctx.group = scale, group
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        query, key, value, out, weights = ctx.saved_tensors
        found = ring._templated_ring_attention_backward(
            ctx.group,
            2,
            _cpu_backward,
            grad_out=gradients[0].contiguous(),
            grad_out_name="grad_out",
            query=query,
            key=key,
            value=value,
            out=out,
            logsumexp=weights,
            is_causal=True,
            dropout_p=0.0,
            scale=ctx.scale,
        )
        return found[0], found[1], found[2], None, None

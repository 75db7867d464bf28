"""A plan of tensor parallelism for common models: the blocks of transformers, and MLPs, known by their usual names."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from torch import nn

from ..plugins.parallelism import TorchTensorParallelConfig
from .tensor_plan import Plan, inside
from .tensor_styles import Column, Row, Sequence, Together, Whole

logger = logging.getLogger(__name__)

_ATTENTION = (
    ("q_proj", "k_proj", "v_proj"),
    ("wq", "wk", "wv"),
    ("q", "k", "v"),
    ("query", "key", "value"),
    ("to_q", "to_k", "to_v"),
    ("q_lin", "k_lin", "v_lin"),
    ("self.query", "self.key", "self.value"),  # BERT and its kin
    ("attention.query", "attention.key", "attention.value"),
)
_ATTENTION_OUT = (
    "o_proj",
    "out_proj",
    "wo",
    "o",
    "proj",
    "out",
    "out_lin",
    "dense",
    "c_proj",
    "to_out",
    "output.dense",
)
_MLP = (
    (("gate_proj", "up_proj"), "down_proj"),
    (("up_proj",), "down_proj"),
    (("w1", "w3"), "w2"),
    (("w1",), "w2"),
    (("wi_0", "wi_1"), "wo"),
    (("wi",), "wo"),
    (("gate", "up"), "down"),
    (("up",), "down"),
    (("fc1",), "fc2"),
    (("c_fc",), "c_proj"),
    (("lin1",), "lin2"),
    (("linear1",), "linear2"),
    (("dense_h_to_4h",), "dense_4h_to_h"),
    (("intermediate.dense",), "output.dense"),
)
_HEADS = ("num_heads", "n_heads", "n_head", "heads", "num_attention_heads", "nhead")
_KEY_HEADS = ("num_key_value_heads", "n_kv_heads", "num_kv_heads", "n_kv_head")
_HEAD_NORMS = ("q_norm", "k_norm", "q_layernorm", "k_layernorm", "query_norm", "key_norm", "norm_q", "norm_k")
_LAST = ("lm_head", "head", "output", "classifier", "score", "embed_out", "proj_out", "decoder", "unembed")
_ELEMENTWISE = (
    nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.Softplus, nn.Mish, nn.Hardswish,
    nn.ReLU6, nn.Identity, nn.Dropout,
)  # fmt: skip
_NOT_OURS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.MultiheadAttention)


def derive(model: nn.Module, size: int, config: TorchTensorParallelConfig) -> Plan:
    """What can be split over `size` processes; an empty plan where nothing can.

    Raises:
        ValueError: it has nothing for `loss_parallel`, or something that `sequence_parallel` cannot have.
    """
    return _Derivation(model, size, config).plan


class _Derivation:
    """A plan for the common blocks of transformers, and for MLPs."""

    def __init__(self, model: nn.Module, size: int, config: TorchTensorParallelConfig) -> None:
        self.model, self.size, self.config = model, size, config
        self.sequence = config.sequence_parallel
        self.plan = Plan()
        self.holders: dict[int, int] = {}
        for module in model.modules():
            for parameter in module.parameters(recurse=False):
                self.holders[id(parameter)] = self.holders.get(id(parameter), 0) + 1
        for name, module in model.named_modules():
            if isinstance(module, _NOT_OURS):
                logger.warning("%s (%s) stays whole on each process", name, type(module).__name__)
            elif not any(inside(name, other) and other for other in self._not_ours()):
                self._attention(name, module)
                self._mlp(name, module)
        if self.plan.styles or config.loss_parallel:
            self._vocabulary()
        if self.sequence and self.plan.styles:
            self._along_the_sequence()

    def _not_ours(self) -> Iterator[str]:
        return (name for name, module in self.model.named_modules() if isinstance(module, _NOT_OURS))

    def _layer(self, module: nn.Module, name: str) -> nn.Linear | None:
        """The Linear `name` of `module`, if its parameters are its own."""
        layer: Any = module
        for part in name.split("."):
            layer = getattr(layer, part, None)
        if type(layer) is nn.Linear and all(self.holders[id(p)] == 1 for p in layer.parameters()):
            return layer
        return None

    def _add(self, parent: str, columns: tuple[str, ...], row: str) -> None:
        prefix = f"{parent}." if parent else ""
        for name in columns:
            self.plan.styles[prefix + name] = Column()
        self.plan.styles[prefix + row] = Row(sequence=self.sequence)

    def _attention(self, name: str, module: nn.Module) -> None:
        for names in _ATTENTION:
            q, k, v = (self._layer(module, one) for one in names)
            out = next((one for one in _ATTENTION_OUT if self._layer(module, one)), None)
            if q is None or k is None or v is None or out is None:
                continue
            if self._layer(module, out).in_features != q.out_features:  # type: ignore[union-attr]
                continue
            norms = [one for one in _HEAD_NORMS if _is_norm(getattr(module, one, None))]
            if any(p.numel() >= k.out_features for one in norms for p in getattr(module, one).parameters()):
                logger.warning("%s stays whole on each process: its %s go over all heads", name, ", ".join(norms))
                continue
            holder = self.model.get_submodule(f"{name}.{names[0]}".strip(".").rpartition(".")[0])
            counts = [_number(holder, _HEADS), _number(holder, _KEY_HEADS), *(p.out_features for p in (q, k, v))]
            if any(count is not None and count % self.size for count in counts):
                logger.warning("%s stays whole on each process: its heads are no multiple of %d", name, self.size)
                continue
            self._add(name, names, out)
            for norm in norms:
                self.plan.styles[f"{name}.{norm}" if name else norm] = Sequence(heads=True)
            return

    def _mlp(self, name: str, module: nn.Module) -> None:
        for columns, row in _MLP:
            ups, down = [self._layer(module, one) for one in columns], self._layer(module, row)
            if down is not None and all(up is not None and _chain(up, down, self.size) for up in ups):
                self._add(name, columns, row)
                return
        if isinstance(module, nn.Sequential):
            names = [one for one, _ in module.named_children()]
            first: str | None = None
            for one in names:
                layer = self._layer(module, one)
                if layer is None:
                    first = first if isinstance(getattr(module, one), _ELEMENTWISE) else None
                elif first is not None and _chain(self._layer(module, first), layer, self.size):
                    self._add(name, (first,), one)
                    first = None
                else:
                    first = one

    def _vocabulary(self) -> None:
        """Token embeddings, and the head over the same vocabulary."""
        heads = {
            name: module
            for name, module in self.model.named_modules()
            if type(module) is nn.Linear and name.rpartition(".")[2] in _LAST and name not in self.plan.styles
        }
        for name, head in heads.items():
            if head.out_features % self.size:
                continue
            same = [
                (where, table)
                for where, table in self.model.named_modules()
                if type(table) is nn.Embedding and table.num_embeddings == head.out_features and table.max_norm is None
            ]
            tied = [where for where, table in same if table.weight is head.weight]
            if self.holders[id(head.weight)] != 1 + len(tied) or (
                head.bias is not None and self.holders[id(head.bias)] > 1
            ):
                continue
            if same or self.config.loss_parallel:
                self.plan.styles[name] = Column(
                    gather=not self.config.loss_parallel, local=not self.config.loss_parallel
                )
                if self.config.loss_parallel:
                    self.plan.heads.append(name)
                for where in tied or [where for where, _ in same[:1]]:
                    self.plan.styles[where] = Row(local=not self.sequence)
        if self.config.loss_parallel and not self.plan.heads:
            raise ValueError(
                f"loss_parallel=True: {type(self.model).__name__} has no layer that gives logits: a Linear called "
                f"{', '.join(_LAST)}, whose outputs are a multiple of {self.size}. Leave loss_parallel out."
            )

    def _along_the_sequence(self) -> None:
        """Norms run on activations that are split along the sequence; all others take and give DTensors."""
        blocks = self.plan.blocks(self.model)
        planned = set(self.plan.styles)
        for name, module in self.model.named_modules():
            own = list(module.parameters(recurse=False))
            if name in planned or not own:
                continue
            within = any(inside(name, block) and self._is_closed(block) for block in blocks)
            if isinstance(module, nn.Embedding):
                self.plan.styles[name] = Whole()
            elif type(module) is nn.Linear and not within:
                self.plan.styles[name] = Column(gather=True) if not module.out_features % self.size else Whole()
            elif _is_norm(module):
                self.plan.styles[name] = Sequence(last=self._is_last(name))
            else:
                raise ValueError(
                    f"sequence_parallel=True: it is not known how {name or 'the model'} ({type(module).__name__}) "
                    "treats activations that are split along the sequence. Leave sequence_parallel out, or pass a plan "
                    "with styles of torch.distributed.tensor.parallel (SequenceParallel(), …)."
                )
        for block in blocks:
            if block and self._is_closed(block):
                self.plan.styles[block] = Together()

    def _is_last(self, norm: str) -> bool:
        """Whether the norm comes after the list of all blocks: there the sequence is whole again."""
        parent, _, own = norm.rpartition(".")
        children = list(self.model.get_submodule(parent).named_children())
        before = children[: [name for name, _ in children].index(own)]
        lists = [name for name, part in before if isinstance(part, (nn.ModuleList, nn.Sequential, nn.ModuleDict))]
        prefix = f"{parent}." if parent else ""
        return any(inside(block, prefix + name) for name in lists for block in self.plan.blocks(self.model))

    def _is_closed(self, block: str) -> bool:
        """Whether `block` is attention, or an MLP, alone: all that enters it goes to its columns."""
        module = self.model.get_submodule(block)
        flat = not any(list(child.children()) for child in module.children())
        return flat and (_has_heads(module) or not any(_is_norm(part) for part in module.children()))


def _has_heads(module: nn.Module) -> bool:
    return any(all(hasattr(module, name) for name in names) for names in _ATTENTION)


def _number(module: nn.Module, names: tuple[str, ...]) -> int | None:
    for holder in (module, getattr(module, "config", None)):
        for name in names:
            value = getattr(holder, name, None)
            if type(value) is int:
                return value
    return None


def _chain(first: nn.Linear | None, second: nn.Linear, size: int) -> bool:
    return first is not None and first.out_features == second.in_features and not first.out_features % size


def _is_norm(module: nn.Module | None) -> bool:
    if module is None:
        return False
    known = isinstance(module, (nn.LayerNorm, nn.RMSNorm))
    own = list(module.parameters(recurse=False))
    return known or (type(module).__name__.lower().endswith("norm") and all(p.ndim == 1 for p in own) and bool(own))

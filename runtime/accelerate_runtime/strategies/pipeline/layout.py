"""Which stage holds which part of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Layout:
    """The stages of a model.

    Attributes:
        cuts: for each stage but the first, the name of the module whose call begins it.
        stage_of: the stage of each module's own tensors, by the module's name.
        moved: parameters that stand on another stage than their module's others, by name.
        blocks: the names of the modules between which it is cut, in the order of their calls.
    """

    cuts: tuple[str, ...]
    stage_of: dict[str, int]
    moved: dict[str, int]
    blocks: tuple[str, ...]

    @property
    def stages(self) -> int:
        """Their number."""
        return len(self.cuts) + 1

    def of_parameter(self, module: str, name: str) -> int:
        """The stage of a module's own parameter."""
        return self.moved.get(f"{module}.{name}" if module else name, self.stage_of[module])


def lay_out(model: nn.Module, stages: int, split_points: Sequence[str] | None, at_end: Sequence[str]) -> Layout:
    """Cut a model into stages.

    Modules are taken to be called in the order in which they were registered.

    Args:
        split_points: for each stage but the first, the name of the module that begins it. None finds the blocks that
            the model is made of, and balances the number of parameters.
        at_end: names of modules and parameters that the last stage uses, though they were registered before.

    Raises:
        ValueError: there are no such names, or no blocks to cut between; the message says what to pass.
    """
    order = [name for name, _ in model.named_modules()]
    if split_points is None:
        cuts, blocks = _found(model, stages, order, at_end)
    else:
        cuts = _checked(split_points, stages, order)
        blocks = _around(cuts, order)
    first = {name: index for index, name in enumerate(order)}
    begins = [first[cut] for cut in cuts]
    stage_of = {name: sum(begin <= index for begin in begins) for name, index in first.items()}
    moved: dict[str, int] = {}
    own = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for wanted in at_end:
        inside = [name for name in order if wanted and (name == wanted or name.startswith(wanted + "."))]
        if not inside and wanted not in own:
            raise ValueError(
                f"TorchPipelineParallelConfig(at_end=...): the model has no module and no parameter {wanted!r}"
            )
        stage_of |= dict.fromkeys(inside, len(cuts))
        if not inside:
            moved[wanted] = len(cuts)
    layout = Layout(tuple(cuts), stage_of, moved, tuple(blocks))
    _check_filled(model, layout)
    return layout


def _checked(split_points: Sequence[str], stages: int, order: list[str]) -> list[str]:
    given = list(split_points)
    if len(given) != stages - 1:
        raise ValueError(
            f"TorchPipelineParallelConfig(split_points={given}) makes {len(given) + 1} stages, but there are {stages}: "
            f"name {stages - 1} modules, each the first of a stage."
        )
    unknown = [name for name in given if name not in order or not name]
    if unknown:
        raise ValueError(
            f"TorchPipelineParallelConfig(split_points=...): the model has no module {', '.join(map(repr, unknown))}; "
            f"it has {_some(name for name in order if name)}"
        )
    if sorted(given, key=order.index) != given or len(set(given)) < len(given):
        raise ValueError(
            f"TorchPipelineParallelConfig(split_points={given}): name them in the order in which the model has them, "
            "each once"
        )
    return given


def _around(cuts: list[str], order: list[str]) -> list[str]:
    """The cuts with their siblings."""
    parents = {cut.rpartition(".")[0] for cut in cuts}
    return [name for name in order if (name and name.rpartition(".")[0] in parents and "." in name) or name in cuts]


def _found(model: nn.Module, stages: int, order: list[str], at_end: Sequence[str]) -> tuple[list[str], list[str]]:
    """Where to cut, and the blocks: of the chains of blocks that there are, the one that balances best."""
    sizes = _sizes(model, at_end)
    best: tuple[int, list[str], list[str]] | None = None
    chains: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, (nn.ModuleList, nn.Sequential, nn.ModuleDict)):
            blocks = [f"{name}.{child}" if name else child for child, _ in module.named_children()]
            found = _balance(order, sizes, blocks, stages)
            if found is None or _inside(model, name, chains):
                continue
            chains.append(name)
            if best is None or found[0] < best[0]:
                best = (*found, blocks)
    if best is None:
        raise ValueError(
            f"the model ({type(model).__name__}) has no nn.ModuleList, nn.ModuleDict or nn.Sequential that can be "
            f"cut into {stages} stages with parameters in each: start fewer stages (pp_size), or name the module that "
            "begins each stage, TorchPipelineParallelConfig(split_points=[...]). It has "
            + _some(name for name in order if name)
        )
    return best[1], best[2]


def _inside(model: nn.Module, name: str, chains: list[str]) -> bool:
    """Whether the module is in a block of one of `chains`, whose forward may lead a connection around the module.

    That of an nn.Sequential does not.
    """
    above = name
    straight = True
    while above:
        above = above.rpartition(".")[0]
        straight = straight and isinstance(model.get_submodule(above), nn.Sequential)
        if above in chains:
            return not straight
    return False


def _sizes(model: nn.Module, at_end: Sequence[str]) -> dict[str, int]:
    """How many numbers each module's own parameters have, each counted once; those at the end count for none."""
    seen: set[int] = set()
    sizes: dict[str, int] = {}
    for name, module in model.named_modules():
        sizes[name] = 0
        for own, parameter in module.named_parameters(recurse=False):
            full = f"{name}.{own}" if name else own
            if id(parameter) not in seen and not any(full == one or full.startswith(one + ".") for one in at_end):
                seen.add(id(parameter))
                sizes[name] += parameter.numel()
    return sizes


def _balance(order: list[str], sizes: dict[str, int], blocks: list[str], stages: int) -> tuple[int, list[str]] | None:
    """The size of the largest stage, and the blocks that begin the others; None where a stage would be empty."""
    starts = [order.index(block) for block in blocks]
    running = [0]
    for name in order:
        running.append(running[-1] + sizes[name])
    ends = [*starts, len(order)]
    best: dict[tuple[int, int], tuple[int, list[str]]] = {}  # (stages so far, where they end) -> largest, cuts
    for index, end in enumerate(ends):
        if running[end] > 0:
            best[1, index] = (running[end], [])
    for count in range(2, stages + 1):
        for index, end in enumerate(ends):
            for before in range(index):
                size = running[end] - running[ends[before]]
                if size and (count - 1, before) in best:
                    largest, cuts = best[count - 1, before]
                    largest = max(largest, size)
                    if (count, index) not in best or largest < best[count, index][0]:
                        best[count, index] = (largest, [*cuts, blocks[before]])
    return best.get((stages, len(blocks)))


def _check_filled(model: nn.Module, layout: Layout) -> None:
    filled = {stage for _, _, _, stage in parameters(model, layout)}
    empty = [stage for stage in range(layout.stages) if stage not in filled]
    if empty:
        raise ValueError(
            f"stage {empty[0]} of the pipeline would have no parameters: choose other "
            "TorchPipelineParallelConfig(split_points=[...])"
        )


def parameters(model: nn.Module, layout: Layout) -> Iterator[tuple[nn.Module, str, nn.Parameter, int]]:
    """Each place of a parameter: its module, its name there, itself, and its stage. Tied ones come several times."""
    for name, module in model.named_modules():
        for own, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            yield module, own, parameter, layout.of_parameter(name, own)


def buffers(model: nn.Module, layout: Layout) -> Iterator[tuple[nn.Module, str, torch.Tensor, int, bool]]:
    """Each place of a buffer: its module, its name there, itself, its stage, and whether all stages keep it.

    They keep those of modules without parameters (masks, tables of rotations), and of modules that are cut.
    """
    cut = {cut.rsplit(".", depth)[0] for cut in layout.cuts for depth in range(1, cut.count(".") + 1)} | {""}
    for name, module in model.named_modules():
        shared = name in cut or not any(True for _ in module.parameters(recurse=False))
        for own, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
            yield module, own, buffer, layout.stage_of[name], shared


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:12]) + (", …" if len(listed) > 12 else "")

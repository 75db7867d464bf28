"""AM260: what is left of `torch.cuda` and CUDA's environment is named."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accelerate_migrate.analysis.devices import is_flag
from accelerate_migrate.analysis.library import HARMLESS_CUDA, is_cuda_tensor_type
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.values import Library
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import library_calls, library_names, own_statement

_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES is set by the launcher (gpu_ids in the launch config); remove it here"


def apply(context: Context) -> None:
    """Drop ``set_device``; name the other calls."""
    for call, names in library_calls(context.plan):
        if not _is_of_cuda(names) or not context.may_change(call):
            continue
        if names <= HARMLESS_CUDA:
            if own_statement(context.plan, call) is not None:
                context.note(call, f"{short(call)} does nothing without CUDA; left as it is")
            continue
        statement = own_statement(context.plan, call)
        if names == {"torch.cuda.set_device"} and statement is not None:
            context.migrated(call, f"{short(call)}: the accelerator sets its process's device")
            context.delete(statement)
        elif not _under_flag(context.plan.training, call):
            context.manual(call, f"{short(call)} needs CUDA; left as it is")
    for node in context.plan.module.walk():
        if isinstance(node, ast.Attribute) and not isinstance(context.parent(node), ast.Call):
            if any(map(is_cuda_tensor_type, library_names(context.plan, node))):
                context.review(
                    node,
                    f"{short(node)} as a type ties this script to CUDA: on other accelerators it makes CPU tensors",
                )
        if isinstance(node, ast.Constant) and node.value == "CUDA_VISIBLE_DEVICES":
            context.manual(node, _VISIBLE_DEVICES)


def remaining(training: Training) -> Iterator[tuple[ast.AST, str]]:
    """What a migrated file still holds that needs CUDA, and why: a person has not acted on it yet."""
    for node in training.module.walk():
        if isinstance(node, ast.Constant) and node.value == "CUDA_VISIBLE_DEVICES":
            yield node, _VISIBLE_DEVICES
        elif isinstance(node, ast.Call) and not _under_flag(training, node):
            names = {a.name for a in training.value(node.func) if isinstance(a, Library)}
            moves = isinstance(node.func, ast.Attribute) and node.func.attr == "cuda"
            if moves or (names and _is_of_cuda(names) and not names <= HARMLESS_CUDA):
                yield node, f"{short(node)} needs CUDA"


def _is_of_cuda(names: Iterable[str]) -> bool:
    return all(name.startswith("torch.cuda.") for name in names)


def _under_flag(training: Training, call: ast.Call) -> bool:
    return any(isinstance(a, ast.If) and is_flag(training, a.test) for a in training.module.ancestors(call))


RULE = Rule(
    code="AM260",
    name="cuda-calls",
    summary="`torch.cuda.set_device` goes; other calls that need CUDA are named.",
    why="The accelerator sets each process's device. A script that must run anywhere cannot call what exists on CUDA "
    "only.",
    before="torch.cuda.set_device(args.gpu)",
    after="",
    safety="Exact. Calls that do nothing without CUDA get a note; those under a test for CUDA are left in silence.",
    apply=apply,
    remaining=remaining,
    order=14,
)

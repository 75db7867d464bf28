"""AM260: what is left of `torch.cuda` runs where there is CUDA, or is named."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accelerate_migrate.analysis.guards import runs_with_cuda_only
from accelerate_migrate.analysis.library import HARMLESS_CUDA, is_understood_precision
from accelerate_migrate.analysis.tensor_types import torch_name
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.edits import Unwrap, Wrap
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import library_calls, only_says, own_statement

# What is measured or waited for on CUDA alone: elsewhere there is nothing to do.
_CUDA_ALONE = frozenset(
    "torch.cuda." + name
    for name in [
        "synchronize",
        "reset_peak_memory_stats",
        "reset_max_memory_allocated",
        "reset_max_memory_cached",
        "reset_accumulated_memory_stats",
        "ipc_collect",
        "init",
        "set_per_process_memory_fraction",
        "memory_summary",
        "get_device_name",
        "get_device_properties",
        "get_device_capability",
        "mem_get_info",
        "utilization",
        "nvtx.range_push",
        "nvtx.range_pop",
        "nvtx.mark",
        "profiler.start",
        "profiler.stop",
    ]
)


def apply(context: Context) -> None:
    """Drop ``set_device`` and ``with torch.cuda.device(...)``; ask for CUDA in front of what only it has."""
    wrapped: set[ast.stmt] = set()
    for call, names in library_calls(context.plan):
        if not _is_of_cuda(names) or not context.may_change(call) or context.is_gone(call.func):
            continue
        if names <= HARMLESS_CUDA:
            if own_statement(context.plan, call) is not None:
                context.note(call, f"{short(call)} does nothing without CUDA; left as it is")
            continue
        statement = own_statement(context.plan, call)
        around = _with_around(context, call)
        if names == {"torch.cuda.set_device"} and statement is not None:
            context.migrated(call, f"{short(call)}: the accelerator sets its process's device")
            context.delete_emptying(statement)
        elif names <= {"torch.cuda.device", "torch.cuda.device_of"} and around is not None:
            context.migrated(call, f"with {short(call)}: the accelerator sets its process's device")
            context.edit(Unwrap(around))
            context.gone.update(around.items)
        elif not runs_with_cuda_only(context.plan.training, call):
            _ask_first(context, call, names, wrapped)


def _with_around(context: Context, call: ast.Call) -> ast.With | None:
    """The ``with`` that enters this call and nothing else."""
    item = context.parent(call)
    around = context.parent(item)
    single = isinstance(around, ast.With) and len(around.items) == 1 and around.items[0].optional_vars is None
    return around if single and isinstance(around, ast.With) and isinstance(item, ast.withitem) else None


def _ask_first(context: Context, call: ast.Call, names: frozenset[str], wrapped: set[ast.stmt]) -> None:
    """Put a statement that measures or shows CUDA under ``if``; name what cannot be left out elsewhere."""
    statement = context.plan.module.statement(call)
    if statement in wrapped:
        return
    shown = isinstance(statement, ast.Expr) and (statement.value is call or only_says(statement.value))
    torch = torch_name(context.plan.module, call)
    if not shown or not names <= _CUDA_ALONE or (torch is None and not context.has_accelerator(call)):
        context.manual(call, f"{short(call)} needs CUDA; left as it is")
        return
    available = f"{torch}.cuda.is_available()"
    test = f'{context.device(call)}.type == "cuda"' if context.has_accelerator(call) else available
    wrapped.add(statement)
    context.edit(Wrap((statement,), f"if {test}:"))
    context.migrated(call, f"{short(call)} needs CUDA, and is left out without it")


def remaining(training: Training) -> Iterator[tuple[ast.AST, str]]:
    """What a migrated file still holds that needs CUDA, and why: a person has not acted on it yet."""
    for node in training.module.walk():
        if isinstance(node, ast.Call) and not runs_with_cuda_only(training, node):
            names = training.library_names(node.func)
            moves = isinstance(node.func, ast.Attribute) and node.func.attr == "cuda"
            if moves or (names and _is_of_cuda(names) and not names <= HARMLESS_CUDA):
                yield node, f"{short(node)} needs CUDA"


def _is_of_cuda(names: Iterable[str]) -> bool:
    return all(name.startswith("torch.cuda.") and not is_understood_precision(name) for name in names)


RULE = Rule(
    code="AM260",
    name="cuda-calls",
    summary="`torch.cuda.set_device` goes; what measures CUDA asks for it first; other calls that need it are named.",
    why="The accelerator sets each process's device. A script that must run anywhere cannot call what exists on CUDA "
    "only, unless it asks first: `torch.cuda.synchronize()` has nothing to wait for elsewhere.",
    before="torch.cuda.set_device(args.gpu)",
    after="",
    safety="Exact. Calls that do nothing without CUDA get a note; those under a test for CUDA are left in silence.",
    apply=apply,
    remaining=remaining,
    order=14,
)

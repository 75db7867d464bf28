"""What a script settles of how it is launched: the GPUs it names, the number of processes, the CPU."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from accelerate_migrate.analysis.library import DATA_PARALLEL
from accelerate_migrate.analysis.plan import Plan
from accelerate_migrate.analysis.values import Library


@dataclass(frozen=True, slots=True)
class LaunchFact:
    """One setting of a launch config, the line that settles it, and what that line does."""

    key: str
    value: str | int | bool
    line: int
    why: str


def launch_facts(plan: Plan) -> list[LaunchFact]:
    """The launch settings that the script's code fixes, at most one a key."""
    found: dict[str, LaunchFact] = {}
    for fact in _all(plan):
        found.setdefault(fact.key, fact)
    return list(found.values())


def _all(plan: Plan) -> Iterator[LaunchFact]:
    if plan.placement.cpu == "True":
        yield LaunchFact("use_cpu", True, plan.placement.chosen_at, "the script trains on the CPU")
    for node in plan.module.walk():
        if isinstance(node, ast.Call) and any(
            isinstance(a, Library) and a.name in DATA_PARALLEL for a in plan.value(node.func)
        ):
            yield from _data_parallel(node)
    for definition in plan.definitions:
        yield from _named_gpu(definition.statement)
    for node in plan.module.walk():
        if isinstance(node, ast.Assign) and any("CUDA_VISIBLE_DEVICES" in ast.unparse(t) for t in node.targets):
            if isinstance(node.value, ast.Constant) and re.fullmatch(r"\d+(,\d+)*", str(node.value.value)):
                yield LaunchFact("gpu_ids", str(node.value.value), node.lineno, "CUDA_VISIBLE_DEVICES is set here")


def _data_parallel(call: ast.Call) -> Iterator[LaunchFact]:
    for keyword in call.keywords:
        if keyword.arg == "device_ids":
            ids = _integers(keyword.value)
            if ids:
                listed = ",".join(map(str, ids))
                yield LaunchFact("gpu_ids", listed, call.lineno, "DataParallel used these GPUs")
                if len(ids) > 1:
                    yield LaunchFact("num_processes", len(ids), call.lineno, "DataParallel used as many GPUs")
                    yield LaunchFact("distributed_type", "MULTI_GPU", call.lineno, "DataParallel used several GPUs")


def _integers(node: ast.expr) -> list[int]:
    if not isinstance(node, (ast.List, ast.Tuple)):
        return []
    values = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, int)]
    return values if len(values) == len(node.elts) else []


def _named_gpu(statement: ast.stmt) -> Iterator[LaunchFact]:
    """``"cuda:1"`` names a GPU; ``"cuda:0"`` is what one says for any."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = re.fullmatch(r"cuda:([1-9]\d*)", node.value)
            if named:
                yield LaunchFact("gpu_ids", named[1], node.lineno, f"the script trained on {node.value}")

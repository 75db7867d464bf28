"""What a script settles of how it is launched: the GPUs it names, the number of processes, the CPU."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from accelerate_migrate.analysis.library import DATA_PARALLEL
from accelerate_migrate.analysis.modules import Module
from accelerate_migrate.analysis.plan import Plan


@dataclass(frozen=True, slots=True)
class LaunchFact:
    """One setting of a launch config, the line that settles it, and what that line does."""

    key: str
    value: str | int | bool
    line: int
    why: str


def entries(plan: Plan, changed: set[Module]) -> list[Module]:
    """The files that are started to train: each runs the set-up, its own or a changed file's; where none is known to,
    the changed file that holds it."""
    found: list[Module] = []
    for creation in plan.placement.creations:
        callers = [s for s in plan.training.callers_of(creation.scope) if isinstance(s, ast.Module)]
        own = plan.module.module_of(creation.scope)
        started = [plan.module.module_of(scope) for scope in callers]
        runs = [m for m in started if m is not None]
        for module in (runs or [own]) if own is not None and own in changed else []:
            if module is not None and module not in found:
                found.append(module)
    return found


def launch_facts(plan: Plan, modules: Iterable[Module]) -> list[LaunchFact]:
    """The launch settings that the code of these files fixes, at most one a key."""
    found: dict[str, LaunchFact] = {}
    for fact in _all(plan, [m for m in plan.module.active if m in set(modules)]):
        found.setdefault(fact.key, fact)
    return list(found.values())


def _all(plan: Plan, modules: list[Module]) -> Iterator[LaunchFact]:
    for creation in plan.placement.creations:
        if plan.module.module_of(creation.scope) not in modules:
            continue
        if creation.cpu == "True":
            yield LaunchFact("use_cpu", True, creation.chosen_at, "the script trains on the CPU")
        mode = plan.precision.modes.get(creation)
        if mode is not None and (mode.conditions or mode.chosen_type):
            why = f"the script's own `{mode.text}` decides"
            yield LaunchFact("mixed_precision", "no", mode.node.lineno, why)
        elif mode is not None and mode.type in ("fp16", "bf16"):
            yield LaunchFact("mixed_precision", mode.type, mode.node.lineno, "the script asks for it")
    nodes = [node for module in modules for node in module.walk()]
    for node in nodes:
        if isinstance(node, ast.Call) and plan.training.library_names(node.func) & DATA_PARALLEL:
            yield from _data_parallel(node)
    for definition in plan.definitions:
        if plan.module.module_of(definition.statement) in modules:
            yield from _named_gpu(definition.statement)
    for node in nodes:
        if isinstance(node, ast.Assign) and any("CUDA_VISIBLE_DEVICES" in ast.unparse(t) for t in node.targets):
            flag = _default_of_flag(plan, node.value)
            listed = flag.value if flag is not None else node.value
            if isinstance(listed, ast.Constant) and re.fullmatch(r"\d+(,\d+)*", str(listed.value)):
                why = "CUDA_VISIBLE_DEVICES is set here" if flag is None else "what CUDA_VISIBLE_DEVICES is by default"
                yield LaunchFact("gpu_ids", str(listed.value), listed.lineno, why)


def _default_of_flag(plan: Plan, node: ast.expr) -> ast.keyword | None:
    """The ``default=`` of the flag that ``args.gpu_id`` reads."""
    if not isinstance(node, ast.Attribute):
        return None
    for call in plan.module.walk():
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            if any(flag.startswith("--") and flag[2:].replace("-", "_") == node.attr for flag in flags):
                return next((k for k in call.keywords if k.arg == "default"), None)
    return None


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

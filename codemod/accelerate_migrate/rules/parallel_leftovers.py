"""AM490: what is left of a process group is named."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis import parallel_library as table
from accelerate_migrate.analysis.atoms import FunctionRef, Share
from accelerate_migrate.analysis.modules import Module
from accelerate_migrate.analysis.units import is_never_named
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import library_calls

_HARMLESS = frozenset({"torch.distributed.is_available", "torch.distributed.is_nccl_available",
                       "torch.distributed.is_gloo_available", "torch.distributed.is_mpi_available",
                       "torch.nn.SyncBatchNorm.convert_sync_batchnorm", *table.PINNING})  # fmt: skip


_STARTS_PROGRAMS = frozenset({"os.system", *(f"subprocess.{n}" for n in ("Popen", "call", "check_call", "run"))})
_EXCHANGES = ("all_gather", "all_reduce", "broadcast", "reduce", "get_rank", "get_world_size", "gather")


def apply(context: Context) -> None:
    """Name every call that still needs a process group, and models that talk to other processes themselves."""
    parallel = context.plan.parallel
    for call, name in parallel.calls.items():
        if name not in _HARMLESS and context.may_change(call) and call.func not in context.gone:
            context.manual(
                call, f"{short(call)} needs a process group, which there is on several processes only; left as it is"
            )
    if parallel.active:
        _starters(context)
        _imported_models(context)
        _called_elsewhere(context)


def _starters(context: Context) -> None:
    """Programs that this script starts and tells a rank: they would all train as the only process now."""
    for call, names in library_calls(context.plan):
        function = context.plan.module.function(call)
        if names.isdisjoint(_STARTS_PROGRAMS) or not context.may_change(call):
            continue
        if any(isinstance(n, ast.Constant) and "rank" in str(n.value).lower() for n in ast.walk(function)):
            context.manual(
                call,
                f"{short(call.func)} starts the processes of a training by itself: each would train alone now. Start "
                "the training script by the launcher instead",
            )


def _imported_models(context: Context) -> None:
    """Models of imported files that talk to other processes themselves."""
    plan = context.plan
    for node in plan.module.walk():
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        dotted = [a.name for a in node.names]
        level = 0
        if isinstance(node, ast.ImportFrom):
            level, inside = node.level, node.module or ""
            dotted = [inside, *(".".join(filter(None, (inside, name))) for name in dotted)]
        importer = plan.module.module_of(node)
        assert importer is not None
        for module in filter(None, (plan.store.program.find(name, importer, level) for name in dotted)):
            for model in module.tree.body:
                if isinstance(model, ast.ClassDef) and any("Module" in ast.unparse(base) for base in model.bases):
                    line = _exchange(module, model)
                    if line is not None and not is_never_named(plan.training, model):
                        context.manual(
                            node,
                            f"`{model.name}` talks to other processes itself (line {line} of its file) without asking "
                            "whether there are any: start this by the launcher, with several processes",
                        )


def _called_elsewhere(context: Context) -> None:
    """Functions of other files that use the process group without asking whether there is one."""
    plan = context.plan
    for call in plan.module.walk():
        if not isinstance(call, ast.Call) or context.is_gone(call) or call.func in context.gone:
            continue
        for callee in plan.value(call.func).of(FunctionRef):
            if plan.module.is_active(callee.node) or isinstance(callee.node, ast.Lambda) or _is_asked(context, call):
                continue
            line = _exchange(callee.module, callee.node)
            if line is not None:
                context.manual(
                    call,
                    f"{short(call.func)} uses the process group (line {line} of its file) without asking whether "
                    "there is one; call it on several processes only, or let it ask the accelerator",
                )


def _is_asked(context: Context, node: ast.AST) -> bool:
    """Whether an ``if`` around a node asks for several processes."""
    return any(
        isinstance(a, ast.If) and context.plan.parallel.share(a.test) is Share.SPREAD
        for a in context.plan.module.ancestors(node)
    )


def _exchange(module: Module, part: ast.AST) -> int | None:
    """The line on which a function or class uses the process group unasked, itself or by a function of its file."""
    functions = {n.name: n for n in module.tree.body if isinstance(n, ast.FunctionDef)}
    seen: set[ast.AST] = set()
    stack = [part]
    while stack:
        top = stack.pop()
        if top in seen or "is_initialized" in ast.unparse(top):
            continue
        seen.add(top)
        for node in ast.walk(top):
            if isinstance(node, ast.Call):
                named = ast.unparse(node.func)
                if named.startswith(("torch.distributed.", "dist.")) and named.rsplit(".", 1)[-1] in _EXCHANGES:
                    return node.lineno
                if named in functions:
                    stack.append(functions[named])
    return None


RULE = Rule(
    code="AM490",
    name="parallel-leftovers",
    summary="Calls of a process group that stay are named.",
    why="Without a launcher there is no process group: what asks it would fail on one process.",
    before="backend = dist.get_backend()",
    after="backend = dist.get_backend()",
    safety="Nothing is changed.",
    apply=apply,
    order=85,
)

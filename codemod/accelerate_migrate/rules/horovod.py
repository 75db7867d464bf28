"""AM470: what is left of Horovod around a training that `prepare` spreads."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis import parallel_library as table
from accelerate_migrate.analysis.atoms import Library, Role, Share
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import keyword, library_names, method_calls

_ASKED = {
    "horovod.torch.local_size": "num_processes",
    "horovod.torch.is_initialized": "num_processes > 1",
}


def apply(context: Context) -> None:
    """Ask the accelerator, drop settings of the wrapper, and name what has no counterpart."""
    parallel = context.plan.parallel
    if not any(name.startswith("horovod") for name in parallel.calls.values()):
        return
    for call, name in parallel.calls.items():
        if name in table.WRAPPING_OPTIMIZERS:
            _settings(context, call)
        elif context.is_gone(call) or not context.may_change(call):
            continue
        elif name in _ASKED and context.has_accelerator(call):
            context.replace(call, f"{context.accelerator(call)}.{_ASKED[name]}")
            context.migrated(call, f"{short(call)} is asked of the accelerator")
        elif name == "horovod.torch.nccl_built":
            context.replace(call, "torch.distributed.is_nccl_available()")
            context.migrated(call, f"{short(call)} -> torch.distributed.is_nccl_available()")
    if "horovod.torch.broadcast_optimizer_state" in parallel.calls.values():
        _check_loads(context)
    for node in context.plan.module.walk():
        if isinstance(node, ast.Assign) and not context.is_gone(node) and _only_settings(context, node):
            context.migrated(node, f"`{short(node.targets[0])}` was a setting of Horovod's optimizer")
            context.delete(node)


def _check_loads(context: Context) -> None:
    """Raise ``Unclear`` where one process loads an optimizer's state for all: nobody hands it on any more."""
    for call, func in method_calls(context.plan, "load_state_dict"):
        if not context.plan.value(func.value).sites(Role.OPTIMIZER):
            continue
        for around in context.plan.module.ancestors(call):
            if isinstance(around, ast.If):
                parts = around.test.values if isinstance(around.test, ast.BoolOp) else [around.test]
                if any(context.plan.parallel.share(part) is Share.MAIN for part in parts):
                    told = "only the first process loads the optimizer's state, which Horovod handed on"
                    raise Unclear(f"{told}: load it on every process first", call)


def _settings(context: Context, call: ast.Call) -> None:
    operation = keyword(call, "op")
    if operation is not None and "Adasum" in ast.unparse(operation.value):
        context.review(call, "gradients are averaged over processes: Adasum has no counterpart")
    steps = keyword(call, "backward_passes_per_step")
    if steps is not None and ast.unparse(steps.value) != "1":
        context.review(
            call, f"{short(steps.value)} backward passes a step: pass it as gradient_accumulation_steps and accumulate"
        )
    factor = keyword(call, "gradient_predivide_factor")
    if factor is not None and ast.unparse(factor.value) != "1.0":
        context.note(call, "gradient_predivide_factor only guarded sums against overflow; it has no counterpart")


def _only_settings(context: Context, node: ast.Assign) -> bool:
    """Whether a variable holds a setting of Horovod, and nothing that stays reads it."""
    if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
        return False
    names = [
        n for part in ast.walk(node.value) if isinstance(part, ast.expr) for n in library_names(context.plan, part)
    ]
    if not any(n.startswith("horovod.torch.") for n in names) or any(
        isinstance(part, ast.Call) and not any(isinstance(a, Library) for a in context.plan.value(part.func))
        for part in ast.walk(node.value)
    ):
        return False
    inside = context.plan.module.walk(context.plan.module.function(node))
    named = [n for n in inside if isinstance(n, ast.Name) and n.id == node.targets[0].id]
    loads = [n for n in named if isinstance(n.ctx, ast.Load)]
    return bool(loads) and all(context.is_gone(n) for n in loads)


RULE = Rule(
    code="AM470",
    name="horovod",
    summary="Horovod's optimizer, broadcasts and settings go; its numbers are asked of the accelerator.",
    why="`prepare` makes the optimizer average gradients and starts every process from the same parameters, which "
    "`DistributedOptimizer` and `broadcast_parameters` did.",
    before="compression = hvd.Compression.fp16\n"
    "optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression=compression)\n"
    "hvd.broadcast_parameters(model.state_dict(), root_rank=0)",
    after="model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    safety="Exact on one process. Adasum and backward passes of several batches a step get a review finding.",
    apply=apply,
    order=38,
    essential=True,
)

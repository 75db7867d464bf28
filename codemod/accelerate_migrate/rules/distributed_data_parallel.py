"""AM420: `DistributedDataParallel` goes; `prepare` wraps the model, told the same."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis import parallel_library as table
from accelerate_migrate.analysis.library import DATA_PARALLEL, DISTRIBUTED_DATA_PARALLEL
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import keyword, library_calls, library_names

_UNUSED = "find_unused_parameters"  # right for every model, only slower
_TOLD = ("broadcast_buffers", "bucket_cap_mb", _UNUSED, "gradient_as_bucket_view", "static_graph")
_FACTORIES = {f"torch.{name}" for name in ("empty", "full", "ones", "rand", "randint", "randn", "tensor", "zeros")}
_DEFAULTS = {"broadcast_buffers": True, "bucket_cap_mb": 25, _UNUSED: False}


def apply(context: Context) -> None:
    """Unwrap the model and hand on what its wrapper was told."""
    parallel = context.plan.parallel
    _inputs(context)
    if not parallel.active:
        return
    settings: list[dict[str, str]] = []
    for call, name in parallel.calls.items():
        if name in DISTRIBUTED_DATA_PARALLEL:
            own = _told(call)
            if any(own.get(name) != before.get(name) for before in settings for name in _TOLD if name != _UNUSED):
                context.review(call, f"{short(call.func)} is told other than the one before: an accelerator tells all")
            settings.append(own)
            context.migrated(call, f"{short(call.func)}: `prepare` wraps the model")
        elif name in table.WRAPPING_OPTIMIZERS:
            context.migrated(call, f"{short(call.func)}: `prepare` lets the optimizer follow")
        else:
            continue
        if context.may_change(call) and call.args:
            context.replace(call, "{0}", call.args[0])
    for call, names in library_calls(context.plan):
        if names <= DATA_PARALLEL and parallel.is_gone(call):
            context.migrated(call, f"{short(call.func)}: `prepare` wraps the model")
    for node in context.plan.module.walk():
        if isinstance(node, ast.Name) and node.id in parallel.renamed and isinstance(node.ctx, ast.Load):
            if context.may_change(node):
                context.replace(node, parallel.renamed[node.id])
    told = {name: text for own in settings for name, text in sorted(own.items())}
    for creation in context.plan.placement.creations if told else ():
        context.handle_with(creation, "DistributedDataParallelKwargs", told)


def _inputs(context: Context) -> None:
    """A wrapper moved what it was called with; what no prepared loader yields is moved by hand now."""
    plan = context.plan
    for call in plan.module.walk():
        if not isinstance(call, ast.Call) or not _calls_wrapped(context, call):
            continue
        for argument in call.args:
            if _is_made_on_cpu(context, argument) and context.has_accelerator(argument):
                context.replace(argument, f"{{0}}.to({context.device(argument)})", argument)
                context.migrated(argument, f"the wrapper moved {short(argument)} to its device")
    known = {loop.node for loop in plan.training.loops if loop.loaders <= plan.sharded}
    for loop in plan.module.walk():
        if not isinstance(loop, ast.For) or loop in known:
            continue
        stores = [n for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        drawn = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
        for call in plan.module.walk(loop):
            if not isinstance(call, ast.Call) or not _calls_wrapped(context, call):
                continue
            for argument in call.args[:1]:
                if isinstance(argument, ast.Name) and argument.id in drawn and context.has_accelerator(argument):
                    if [n.id for n in stores].count(argument.id) == 1 and context.may_change(argument):
                        context.replace(argument, f"{{0}}.to({context.device(argument)})", argument)
                        context.review(argument, f"the wrapper moved `{argument.id}` to its device; nothing else does")


def _calls_wrapped(context: Context, call: ast.Call) -> bool:
    """Whether a call runs the forward of a model that a wrapper stood around."""
    sites = context.plan.training.forwards(call) & context.plan.prepared
    return any(context.plan.store.details[site].wrappers for site in sites)


def _is_made_on_cpu(context: Context, node: ast.expr) -> bool:
    """``torch.randn(20, 10)``, told no device."""
    return (
        isinstance(node, ast.Call)
        and context.may_change(node)
        and keyword(node, "device") is None
        and bool(names := library_names(context.plan, node.func))
        and names <= _FACTORIES
    )


def _told(call: ast.Call) -> dict[str, str]:
    """The settings of a wrapper that differ from the defaults. One that is only known at run time counts as set."""
    found: dict[str, str] = {}
    for setting in call.keywords:
        if setting.arg not in _TOLD:
            continue
        if isinstance(setting.value, ast.Constant):
            if setting.value.value != _DEFAULTS.get(setting.arg, False):
                found[setting.arg] = repr(setting.value.value)
        elif setting.arg == _UNUSED:
            found[setting.arg] = "True"
    return found


RULE = Rule(
    code="AM420",
    name="distributed-data-parallel",
    summary="`DistributedDataParallel` goes; `prepare` wraps the model and is told what the wrapper was told.",
    why="`prepare` moves the model and wraps it for the strategy that the launch chose: a model that is wrapped "
    "already would be wrapped twice.",
    before="model = DDP(model.cuda(rank), device_ids=[rank], find_unused_parameters=True)",
    after="accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])",
    safety="Exact. Settings of the wrapper that are only known at run time are taken for set.",
    apply=apply,
    order=17,
    essential=True,
)

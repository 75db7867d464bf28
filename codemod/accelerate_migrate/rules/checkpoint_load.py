"""AM155: checkpoints are read to the CPU, or to the process's own device."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelerate_migrate.analysis.atoms import Loaded, Role, Share, Site
from accelerate_migrate.analysis.library import DATA_PARALLEL
from accelerate_migrate.edits import AddArgument, Insert
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import keyword, library_calls, library_names, method_calls, without_module


def apply(context: Context) -> None:
    """Give ``torch.load`` of checkpoints a place to load to; load DataParallel checkpoints with and without prefix."""
    into = _loaded_into(context)
    for call, names in library_calls(context.plan):
        if names != {"torch.load"} or not context.may_change(call):
            continue
        if keyword(call, "map_location") is not None or len(call.args) > 1:
            continue
        if into.intersection(context.plan.value(call).of(Loaded)):
            context.edit(AddArgument(call, '"cpu"', name="map_location"))
            context.migrated(call, f"{short(call)} reads to the CPU: every process would fill the first GPU")
        else:
            context.note(call, f"{short(call)} loads to the device the tensors were saved on; left as it is")
    for call, func in method_calls(context.plan, "load_state_dict"):
        if context.may_change(call):
            _load(context, call, func)
    _wait_for_saved(context)


def _wait_for_saved(context: Context) -> None:
    """A file that this run wrote exists for the other processes only when the main process is done."""
    calls = [(call, names) for call, names in library_calls(context.plan) if call.args]
    saved = {ast.unparse(call.args[1]): call for call, names in calls if names == {"torch.save"} and len(call.args) > 1}
    waited: set[ast.stmt] = set()
    for call, names in calls:
        save = saved.get(ast.unparse(call.args[0])) if names == {"torch.load"} else None
        if (
            save is None
            or save.lineno > call.lineno
            or not context.may_change(call)
            or not context.has_accelerator(call)
            or _is_read_by_one(context, call)
        ):
            continue
        statement: ast.stmt = context.plan.module.statement(call)
        for around in context.plan.module.ancestors(call):
            if isinstance(around, ast.With):  # the file may be opened there
                statement = around
            elif isinstance(around, ast.stmt) and around is not statement:
                break
        if statement not in waited and isinstance(statement, (ast.Assign, ast.Expr, ast.With)):
            waited.add(statement)
            context.edit(Insert(statement, f"{context.accelerator(call)}.wait_for_everyone()"))
            context.migrated(call, f"every process waits until {short(call.args[0])} is written")


def _is_read_by_one(context: Context, call: ast.Call) -> bool:
    """Whether only the first process comes here, which wrote the file itself; the others would not wait with it."""
    return any(
        context.plan.parallel.share(part) is Share.MAIN
        for around in context.plan.module.ancestors(call)
        if isinstance(around, (ast.If, ast.IfExp))
        for part in (around.test.values if isinstance(around.test, ast.BoolOp) else [around.test])
    )


def _loaded_into(context: Context) -> set[Loaded]:
    """The ``torch.load`` calls whose result goes into ``load_state_dict``."""
    found: set[Loaded] = set()
    for call, _ in method_calls(context.plan, "load_state_dict"):
        for argument in call.args:
            for node in ast.walk(argument):
                found |= set(context.plan.value(node).of(Loaded))
    return found


def _load(context: Context, call: ast.Call, func: ast.Attribute) -> None:
    plan = context.plan
    models = plan.value(func.value).sites(Role.MODEL)
    sites = models & plan.prepared
    model = without_module(func.value)
    if not sites and func.value is model and call.args and _is_unwrapped(context, models):
        context.replace(call, _without_prefix(call, "{0}"), model, call.args[0])
        context.migrated(call, "checkpoints with the wrapper's prefix `module.` and without it are accepted")
    if not sites:
        return
    after = plan.any_prepared_at(sites, call)
    if after and not context.has_accelerator(call):
        context.manual(call, f"{short(call)} into a prepared model: unwrap it first")
        return
    receiver = f"{context.accelerator(call)}.unwrap_model({{0}})" if after else "{0}"
    wrapped = func.value is model and _wrapper(context, call, model, sites)
    if wrapped and call.args:
        state = call.args[0]
        context.replace(call, _without_prefix(call, receiver), model, state)
        context.review(
            call,
            f"the original wrapped this model in {wrapped} when it saved: its checkpoints carry the prefix "
            "`module.`, which is accepted here and no longer written",
        )
    elif after or func.value is not model:
        context.replace(func.value, receiver, model)
        context.migrated(call, f"{short(func.value)} is unwrapped to load its state")


def _without_prefix(call: ast.Call, receiver: str) -> str:
    """The template of a ``load_state_dict`` that takes states with and without the wrapper's prefix."""
    rest = "".join(f", {ast.unparse(a)}" for a in call.args[1:])
    rest += "".join(f", {k.arg}={ast.unparse(k.value)}" for k in call.keywords)
    return f'{receiver}.load_state_dict({{{{k.removeprefix("module."): v for k, v in {{1}}.items()}}}}{rest})'


def _is_unwrapped(context: Context, models: Iterable[Site]) -> bool:
    """Whether the DataParallel around each of these models, which are used here but not trained, goes."""
    wrappers = [context.plan.store.details[site].wrappers for site in models]
    return bool(wrappers) and all(
        found
        and all(context.may_change(one) for one in found)
        and all(library_names(context.plan, one.func) <= DATA_PARALLEL for one in found)
        for found in wrappers
    )


def _wrapper(context: Context, call: ast.Call, model: ast.expr, sites: Iterable[Site]) -> str | None:
    """The wrapper that the original had around a model when this call loaded its state, or ``None``."""
    plan = context.plan
    if isinstance(model, ast.Name) and model.id in plan.parallel.bare:
        return None
    sites = frozenset(sites)
    saved = [
        func.value
        for other, func in method_calls(plan, "state_dict")
        if not other.args and plan.value(func.value).sites(Role.MODEL) & sites
    ]
    if saved and all(without_module(one) is not one for one in saved):
        return None  # it was saved without its wrapper
    function = plan.module.function(call)
    for site in sites:
        for wrapper in sorted(plan.store.details[site].wrappers, key=lambda node: node.lineno):
            here = wrapper in plan.module.walk(function)
            if wrapper.lineno <= call.lineno or not here:
                named = library_names(plan, wrapper.func)
                return next((name.rsplit(".", 1)[-1] for name in sorted(named)), "a wrapper")
    return None


RULE = Rule(
    code="AM155",
    name="checkpoint-load",
    summary='`torch.load` of a checkpoint gets `map_location="cpu"`; `load_state_dict` finds the unwrapped model.',
    why="Without a place to load to, every process loads to the device that was saved from. State dicts of a model "
    "that the original wrapped in DataParallel start with `module.`: that prefix is accepted.",
    before='state = torch.load("ckpt.pt")\nnet.load_state_dict(state["net"])',
    after='state = torch.load("ckpt.pt", map_location="cpu")\nnet.load_state_dict(state["net"])',
    safety="`load_state_dict` copies into the parameters wherever they are, so the loaded values are the same. A "
    "loaded file that goes elsewhere is left as it is.",
    apply=apply,
    order=40,
)

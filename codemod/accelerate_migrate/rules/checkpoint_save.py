"""AM150: checkpoints are written once, with the names and keys they had."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Object, Role, StateDict
from accelerate_migrate.analysis.values import flatten
from accelerate_migrate.edits import ReplaceStatement
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import library_calls, library_names, method_calls, own_statement, without_module
from accelerate_migrate.rules.once import writes_to_memory


def apply(context: Context) -> None:
    """Rewrite ``model.state_dict()`` of prepared models and ``torch.save``."""
    for call, func in method_calls(context.plan, "state_dict"):
        if context.may_change(call):
            _state_dict(context, call, func)
    for call, names in library_calls(context.plan):
        if names == {"torch.save"} and context.may_change(call) and not writes_to_memory(context, call):
            _save(context, call)


def _state_dict(context: Context, call: ast.Call, func: ast.Attribute) -> None:
    sites = context.plan.value(func.value).sites()
    models = {site for site in sites if site.role is Role.MODEL}
    if not context.plan.any_prepared_at(models, call):
        return
    if models != sites:
        context.manual(call, f"{short(call)} is asked of a prepared model and of others; it needs two forms")
        return
    if not context.has_accelerator(call):
        context.manual(call, f"{short(call)} of a prepared model: the accelerator cannot be passed here")
        return
    model = without_module(func.value)
    accelerator = context.accelerator(call)
    if call.args or call.keywords:
        context.manual(call, f"{short(call)}: its arguments have no counterpart in {accelerator}.get_state_dict")
        return
    context.migrated(call, f"{short(call)} -> {accelerator}.get_state_dict({short(model)})")
    context.replace(call, f"{accelerator}.get_state_dict({{0}})", model)


def _save(context: Context, call: ast.Call) -> None:
    if not context.has_accelerator(call):
        context.manual(
            call, "torch.save runs on every process here, and the accelerator cannot be passed; guard it by hand"
        )
        return
    accelerator = context.accelerator(call)
    statement = own_statement(context.plan, call)
    holder = _with_around(context, call)
    path = _opened_for_this(context, call, holder) if holder is not None else None
    if holder is not None and path is not None and context.may_change(holder):
        _save_to(context, call, holder, path)
        return
    if holder is not None or len(call.args) != 2 or call.keywords:
        target: ast.stmt | None = holder or statement
        if target is None or (_saves_state(context, call) and holder is None):
            context.manual(
                call, f"{short(call)}: its arguments have no counterpart in {accelerator}.save; left as it is"
            )
            return
        context.guard(target)
        context.review(
            call, "written by the main process only; a model whose parameters are sharded must be gathered before"
        )
        return
    if _is_whole_model(context, call):
        context.migrated(call, f"{short(call)} -> {accelerator}.save(...) of the unwrapped model")
        context.replace(call, f"{accelerator}.save({accelerator}.unwrap_model({{0}}), {{1}})", *call.args)
        return
    _unwrap_inside(context, call)
    context.migrated(call, f"{short(call.func)} -> {accelerator}.save")
    context.replace(call.func, f"{accelerator}.save")


def _is_whole_model(context: Context, call: ast.Call) -> bool:
    whole = context.plan.value(call.args[0]).sites(Role.MODEL)
    return bool(whole) and all(context.plan.is_prepared_at(site, call) for site in whole)


def _opened_for_this(context: Context, call: ast.Call, holder: ast.With) -> ast.expr | None:
    """The path of ``with open(path, "wb") as file: torch.save(x, file)``, which does nothing else."""
    opened, name = holder.items[0].context_expr, holder.items[0].optional_vars
    if len(holder.items) != 1 or not isinstance(opened, ast.Call) or not isinstance(name, ast.Name):
        return None
    alone = own_statement(context.plan, call)
    if holder.body != [alone] or len(call.args) != 2 or call.keywords or ast.unparse(call.args[1]) != name.id:
        return None
    plain = (
        len(opened.args) == 2 and not opened.keywords and library_names(context.plan, opened.func) == {"builtins.open"}
    )
    return opened.args[0] if plain and ast.unparse(opened.args[1]) in ("'wb'", "'bw'") else None


def _save_to(context: Context, call: ast.Call, holder: ast.With, path: ast.expr) -> None:
    """Save by the path: the accelerator opens the file, on one process, when every process has given its part."""
    accelerator = context.accelerator(call)
    saved = f"{accelerator}.save({{0}}, {{1}})"
    if _is_whole_model(context, call):
        saved = f"{accelerator}.save({accelerator}.unwrap_model({{0}}), {{1}})"
    else:
        _unwrap_inside(context, call)
    context.edit(ReplaceStatement(holder, saved, (call.args[0], path)))
    context.gone.update((call.func, call.args[1], holder.items[0].context_expr))
    context.migrated(call, f"{short(call.func)} -> {accelerator}.save, which opens {short(path)} on one process")


def _unwrap_inside(context: Context, call: ast.Call) -> None:
    """Whole models inside the dict, list or tuple that is saved: the wrapper would be pickled with them."""
    plan = context.plan
    inside = {a.site for a in flatten(plan.value(call.args[0])) if isinstance(a, Object)} & plan.prepared
    models = {s for s in inside if s.role is Role.MODEL}
    unwrapped = False
    for literal in plan.module.walk():
        if not isinstance(literal, (ast.Dict, ast.List, ast.Tuple)) or literal.lineno > call.lineno:
            continue
        if plan.module.function(literal) is not plan.module.function(call) and literal not in plan.module.walk(call):
            continue
        for element in literal.values if isinstance(literal, ast.Dict) else literal.elts:
            named = isinstance(element, ast.Name) and isinstance(element.ctx, ast.Load)
            sites = plan.value(element).sites(Role.MODEL) & models
            if named and sites and context.may_change(element) and plan.any_prepared_at(sites, element):
                context.replace(element, f"{context.accelerator(element)}.unwrap_model({{0}})", element)
                context.migrated(element, f"{short(element)} is saved whole, without its wrapper")
                unwrapped = True
    if models and not unwrapped:
        context.manual(call, f"{short(call)} saves a prepared model whole; unwrap it first")


def _saves_state(context: Context, call: ast.Call) -> bool:
    return any(isinstance(a, StateDict) for arg in call.args[:1] for a in context.plan.value(arg))


def _with_around(context: Context, call: ast.Call) -> ast.With | None:
    """The ``with open(...)`` that the save writes into: every process would truncate the file."""
    for around in context.plan.module.ancestors(call):
        if isinstance(around, ast.With) and any(
            isinstance(i.context_expr, ast.Call)
            and isinstance(i.context_expr.func, ast.Name)
            and i.context_expr.func.id == "open"
            for i in around.items
        ):
            return around
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
    return None


RULE = Rule(
    code="AM150",
    name="checkpoint-save",
    summary="`torch.save` becomes `accelerator.save`; a prepared model's state dict comes from the accelerator.",
    why="Only the main process writes. `get_state_dict` gives the same names and tensors as the unwrapped model's "
    "own state dict, under every strategy.",
    before='torch.save({"net": model.state_dict(), "epoch": epoch}, "ckpt.pt")',
    after='accelerator.save({"net": accelerator.get_state_dict(model), "epoch": epoch}, "ckpt.pt")',
    safety="The file has the same name, container and keys. A save into an open file is guarded instead.",
    apply=apply,
    order=40,
)

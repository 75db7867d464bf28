"""AM245: TensorBoard, wandb and the like get each entry once."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Role, Site
from accelerate_migrate.analysis.modules import Tree
from accelerate_migrate.edits import AddArgument
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import keyword, library_calls
from accelerate_migrate.rules.once import write_once


def apply(context: Context) -> None:
    """Make writers on the main process only, guard what is asked of them, and switch wandb off on the others."""
    _runs(context)
    guarded: set[ast.expr] = set()
    for node in context.plan.module.walk():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and context.may_change(node):
            if context.plan.value(node.func.value).sites(Role.WRITER):
                _draws_model(context, node)
                if write_once(context, node):
                    guarded.add(node.func.value)
    for node in context.plan.module.walk():
        if isinstance(node, ast.Call) and context.may_change(node):
            site = _made_by(context, node)
            if site is not None:
                _create(context, node, site, guarded)


# ---- writers


def _made_by(context: Context, call: ast.Call) -> Site | None:
    """The writer that this call makes."""
    sites = context.plan.value(call).sites(Role.WRITER)
    return next((s for s in sites if context.plan.training.made_at(s) is call), None)


def _create(context: Context, call: ast.Call, site: Site, guarded: set[ast.expr]) -> None:
    """Only the main process makes a writer, where every use of it is one that only the main process reaches."""
    if context.in_own_guard(call):
        return
    bound = context.parent(call)
    targets = bound.targets if isinstance(bound, ast.Assign) else []
    named = len(targets) == 1 and isinstance(targets[0], (ast.Name, ast.Attribute))
    if named and context.has_accelerator(call) and _only_used_in(context, site, guarded):
        accelerator = context.accelerator(call)
        context.replace(call, f"{{0}} if {accelerator}.is_main_process else None", call)
        context.migrated(call, f"{short(call.func)}: the main process makes it")
    else:
        context.note(call, f"{short(call.func)}: every process makes one")


def _only_used_in(context: Context, site: Site, guarded: set[ast.expr]) -> bool:
    """Whether a writer is only asked to write by guarded calls, handed to functions of this file, or compared."""
    module = context.plan.module
    for node in module.walk():
        if not (isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)) or node in guarded:
            continue
        if site in context.plan.value(node).sites(Role.WRITER) and not _is_harmless(context, module, node):
            return False
    return True


def _is_harmless(context: Context, module: Tree, node: ast.expr) -> bool:
    """Whether ``None`` does as well as a writer in this place."""
    parent = module.parents[node]
    if isinstance(parent, ast.keyword):
        parent = module.parents[parent]
    if isinstance(parent, ast.Call) and node is not parent.func:
        if isinstance(parent.func, ast.Name) and parent.func.id == "getattr" and len(parent.args) == 3:
            return True  # there is an answer for what has no such attribute
        callees = context.plan.store.calls.get(parent, set())
        own = set(module.walk())
        return bool(callees) and callees <= own
    return (isinstance(parent, (ast.If, ast.IfExp)) and parent.test is node) or isinstance(
        parent, (ast.Compare, ast.BoolOp)
    )


def _draws_model(context: Context, call: ast.Call) -> None:
    """``writer.add_graph(model, x)`` runs the model: the main process does so with the bare one."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "add_graph" and call.args):
        return
    model = call.args[0]
    if context.plan.any_prepared_at(context.plan.value(model).sites(Role.MODEL), model):
        if context.has_accelerator(call):
            context.replace(model, f"{context.accelerator(call)}.unwrap_model({{0}})", model)


# ---- wandb


def _runs(context: Context) -> None:
    """``wandb.init`` makes a run that records nothing on the other processes; where it can't, each call is guarded."""
    calls = [(c, names) for c, names in library_calls(context.plan) if context.may_change(c)]
    starts = [c for c, names in calls if names == {"wandb.init"}]
    if starts and all(context.in_own_guard(c) for c in starts):
        starts = []  # the script has the main process alone start it, and guards the rest by itself
    if starts and all(context.has_accelerator(c) and not any(k.arg is None for k in c.keywords) for c in starts):
        for call in starts:
            accelerator = context.accelerator(call)
            mode = keyword(call, "mode")
            if mode is not None:
                context.replace(mode.value, f'{{0}} if {accelerator}.is_main_process else "disabled"', mode.value)
            else:
                text = f'None if {accelerator}.is_main_process else "disabled"'
                context.edit(AddArgument(call, text, name="mode"))
            context.migrated(call, "wandb.init: the main process records, the others are switched off")
        return
    for call, names in calls:
        if names <= WANDB and not (call in starts and keyword(call, "mode") is not None):
            write_once(context, call)


WANDB = frozenset({"wandb.log", "wandb.init", "wandb.finish", "wandb.watch", "wandb.save"})

RULE = Rule(
    code="AM245",
    name="trackers",
    summary="TensorBoard writers and wandb runs record on the main process.",
    why="Every process runs the script: each would open a writer or a run of its own, and each entry would appear once "
    "a process.",
    before='writer = SummaryWriter("runs")\nwandb.init(project="digits")\nwriter.add_scalar("lr", 0.1, 0)',
    after='writer = SummaryWriter("runs") if accelerator.is_main_process else None\n'
    'wandb.init(project="digits", mode=None if accelerator.is_main_process else "disabled")\n'
    'if accelerator.is_main_process:\n    writer.add_scalar("lr", 0.1, 0)',
    safety="Exact on one process.",
    apply=apply,
    order=61,
)

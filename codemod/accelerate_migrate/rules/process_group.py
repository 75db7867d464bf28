"""AM410: the launcher and the accelerator start, join and end the processes."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis import parallel_library as table
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import own_statement
from accelerate_migrate.rules.parallel_edits import outermost_gone, take_out


def apply(context: Context) -> None:
    """Take the set-up of processes out; what waits for all of them asks the accelerator."""
    parallel = context.plan.parallel
    if not parallel.active:
        return
    for call, name in parallel.calls.items():
        if name in table.STARTING:
            context.migrated(call, f"{short(call)}: the accelerator joins the processes that the launcher starts")
            _create_here(context, call)
        elif name in table.SET_UP and parallel.is_gone(call):
            context.migrated(call, f"{short(call)}: the accelerator does it")
    take_out(context)
    for call, name in parallel.calls.items():
        if name not in table.WAITING or not context.may_change(call):
            continue
        if own_statement(context.plan, call) is None or not context.has_accelerator(call):
            context.manual(call, f"{short(call)} needs a process group; wait by accelerator.wait_for_everyone()")
            continue
        context.replace(call, f"{context.accelerator(call)}.wait_for_everyone()")
        context.migrated(call, f"{short(call)} -> {context.accelerator(call)}.wait_for_everyone()")


def _create_here(context: Context, call: ast.Call) -> None:
    """Let the accelerator be made where the process group was, if it can be."""
    placement = context.plan.placement
    gone = list(outermost_gone(context))
    for creation in placement.creations:
        for statement in creation.leading_to(call):
            around = [statement, *context.plan.module.ancestors(statement)]
            place = next((s for s in gone if s in around), statement)
            if placement.available(place):
                placement.uses.add(place)


RULE = Rule(
    code="AM410",
    name="process-group",
    summary="Starting, joining and ending a process group goes; barriers wait by the accelerator.",
    why="The launcher starts the processes and the accelerator joins them to a group, on the backend that fits their "
    "device, when it is made. A second process group would be an error, and without a launcher there is none.",
    before='dist.init_process_group("nccl")\n...\ndist.barrier()\ndist.destroy_process_group()',
    after="accelerator = Accelerator()\n...\naccelerator.wait_for_everyone()",
    safety="Exact on one process, which needs no launcher any more.",
    apply=apply,
    order=8,
    essential=True,
)

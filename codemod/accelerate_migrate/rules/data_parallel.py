"""AM180: `DataParallel` goes; its splitting of the batch is kept."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Role
from accelerate_migrate.analysis.library import DATA_PARALLEL
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import if_around, library_calls, method_calls, without_module
from accelerate_migrate.rules.spread_calls import DATA_PARALLEL_CALL, call_plainly, plain_call

_SPLIT = (
    "split each batch over the GPUs, and so do the processes now (split_batches): the batch size must be a multiple of "
    "their number"
)


def apply(context: Context) -> None:
    """Unwrap ``nn.DataParallel(model)`` and ask for split batches."""
    found = False
    for call, names in library_calls(context.plan):
        if DATA_PARALLEL_CALL in names and not context.is_gone(call):
            plain = plain_call(context, call) if names == {DATA_PARALLEL_CALL} and context.may_change(call) else None
            if plain is not None:
                found = True
                context.migrated(call, f"{short(call)} -> {short(plain)}: it {_SPLIT}")
                call_plainly(context, call, plain)
            else:
                context.manual(
                    call,
                    f"{short(call)} spreads a part of the model over GPUs by itself; every process would use all of "
                    "them",
                )
        if not names <= DATA_PARALLEL or not context.may_change(call) or not call.args:
            continue
        found = True
        message = f"DataParallel {_SPLIT}"
        if _is_saved_wrapped(context, call):
            context.review(call, f"{message}; checkpoints are written without the prefix `module.`")
        else:
            context.migrated(call, message)
        statement = context.plan.module.statement(call)
        if _only_wraps(statement, call):
            context.delete(if_around(context.plan, statement) or statement)
        else:
            context.replace(call, "{0}", call.args[0])
    if found:
        context.construct_with(
            "dataloader_config", "DataLoaderConfiguration(split_batches=True)", needs="DataLoaderConfiguration"
        )


def _is_saved_wrapped(context: Context, wrapper: ast.Call) -> bool:
    """Whether something may be saved, or handed out, under the names that the wrapper gave it."""
    plan = context.plan
    saves = any("torch.save" in names for _, names in library_calls(plan))
    states = [
        func.value
        for _, func in method_calls(plan, "state_dict")
        if plan.value(func.value).sites(Role.MODEL) & plan.value(wrapper).sites(Role.MODEL)
    ]
    if not saves and not states:
        return False
    return not states or any(without_module(one) is one for one in states)


def _only_wraps(statement: ast.stmt, call: ast.Call) -> bool:
    """``net = nn.DataParallel(net)``."""
    return (
        isinstance(statement, ast.Assign)
        and statement.value is call
        and len(statement.targets) == 1
        and ast.unparse(statement.targets[0]) == ast.unparse(call.args[0])
    )


RULE = Rule(
    code="AM180",
    name="data-parallel",
    summary="`nn.DataParallel` goes; batches are split over the processes as it split them over GPUs.",
    why="One process a device replaces one process for all. DataParallel's batch size is that of all GPUs together, "
    "hence `split_batches=True`.",
    before="net = nn.DataParallel(net)",
    after="accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))",
    safety="Exact on one process. Batch normalisation still sees each process's part, as it did. "
    "`nn.parallel.data_parallel` becomes the module's own call; where its inputs may be a tuple, or it has further "
    "arguments, it is left and named.",
    apply=apply,
    order=15,
    essential=True,
)

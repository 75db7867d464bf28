"""AM140: model, optimizer, loaders and per-batch schedulers go through `prepare`."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Site
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.edits import Insert
from accelerate_migrate.rules.base import Context, Rule
from accelerate_migrate.rules.layout import rebinding


def apply(context: Context) -> None:
    """Insert one ``prepare`` a group of objects that are made together."""
    for group in context.plan.groups:
        accelerator = context.accelerator(group.anchor)
        if group.made is not None:
            context.replace(group.made, f"{accelerator}.prepare({{0}})", group.made)
            context.migrated(group.made, "this loader is prepared where it is made")
            continue
        text = rebinding(tuple(h.name for h in group.homes), f"{accelerator}.prepare", group.anchor.col_offset)
        text = "\n".join([text, *context.after_prepare.get(group.anchor, ())])
        context.edit(Insert(group.anchor, text, after=True))
        names = ", ".join(f"`{home.name}`" for home in group.homes)
        context.migrated(group.anchor, f"prepared here: {names}")
    for site, reason in sorted(context.plan.evaluations.whole.items(), key=lambda item: item[0].line):
        node = _place_of(context, site)
        kept = f"this loader is not prepared: its loop cannot be run on gathered results ({reason})"
        if _draws_its_own_order(context, site):
            context.review(
                node,
                f"{kept}, so every process evaluates all of it, in an order of its own: numbers that depend on the "
                "order differ a little between processes; `shuffle=False` would make them equal",
            )
        else:
            context.note(node, f"{kept}, so every process evaluates all of it and gets the numbers of one process")
    for loop, reason in context.plan.evaluations.doubtful:
        context.review(
            loop.node,
            "on several processes this loop sees a part of a sharded loader and its results are not gathered: "
            f"{reason}",
        )


def _draws_its_own_order(context: Context, site: Site) -> bool:
    """Whether a loader shuffles, or may: each process that reads all of it then does so in another order."""
    given = [k for call in context.plan.store.details[site].nodes for k in call.keywords]
    chosen = {k.arg: context.plan.value(k.value).const() for k in given}
    return chosen.get("shuffle", False) is not False or any("sampler" in str(name) for name in chosen)


def _place_of(context: Context, site: Site) -> ast.AST:
    """The call that makes a loader, or the first loop over it where a file makes it that is not migrated."""
    made = context.plan.training.made_at(site)
    if made is not None and context.plan.module.is_active(made):
        return made
    loop = next((loop.node for loop in context.plan.training.loops if site in loop.loaders), None)
    if loop is None:
        raise Unclear(
            "a loader is neither made nor gone through by the code that trains", context.plan.groups[0].anchor
        )
    return loop


RULE = Rule(
    code="AM140",
    name="prepare",
    summary="Model, optimizer, loaders and per-batch schedulers go through `accelerator.prepare`.",
    why="`prepare` moves the model to its device, wraps it for the chosen strategy, gives each process its part of "
    "every batch and makes optimizer and scheduler follow. It stands once, behind the last of these objects, "
    "before any training.",
    before="model = Net()\noptimizer = SGD(model.parameters(), lr=0.1)\nloader = DataLoader(data, batch_size=32)",
    after="model = Net()\noptimizer = SGD(model.parameters(), lr=0.1)\nloader = DataLoader(data, batch_size=32)\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    safety="Exact on one process. A scheduler stepped once an epoch is not prepared. An evaluation loop whose "
    "results cannot be gathered keeps its loader whole on every process.",
    apply=apply,
    order=45,
    essential=True,
)

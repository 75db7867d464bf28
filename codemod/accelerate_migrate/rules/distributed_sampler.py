"""AM430: `DistributedSampler` goes; `prepare` deals the batches between the processes."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis import processes
from accelerate_migrate.analysis.atoms import Const, Role, Share, Site
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.analysis.values import Value
from accelerate_migrate.edits import AddArgument, RemoveArgument
from accelerate_migrate.findings import Target
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import keyword, own_statement


def apply(context: Context) -> None:
    """Take the sampler from its loaders, which shuffle themselves where it did."""
    parallel = context.plan.parallel
    _elsewhere(context)
    _of_their_own(context)
    if not parallel.active:
        return
    samplers = {site for node in parallel.calls for site in context.plan.value(node).sites(Role.SAMPLER)}
    samplers = {site for site in samplers if site.made_by in processes.SAMPLERS}
    if not samplers:
        return
    for call in context.plan.module.walk():
        if isinstance(call, ast.Call) and context.may_change(call):
            given = keyword(call, "sampler")
            if given is not None and context.plan.value(call).sites(Role.LOADER):
                if processes.is_sampler(context.plan.value(given.value)):
                    _loader(context, call, given)
    for node in context.plan.module.walk():
        if isinstance(node, (ast.Name, ast.Attribute, ast.Call)) and not context.is_gone(node):
            if isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
                if processes.is_sampler(context.plan.value(node)):
                    _use(context, node)
    for call, name in parallel.calls.items():
        if name in processes.SAMPLERS and not context.is_gone(call):
            raise Unclear("this DistributedSampler is used in a way that has no counterpart", call)


def _of_their_own(context: Context) -> None:
    """Samplers of classes of the program that deal between processes: our runtime leaves them to it."""
    plan = context.plan
    for site in sorted(plan.sharded, key=lambda s: s.line):
        for made in plan.store.details[site].nodes:
            given = [k.value for name in ("sampler", "batch_sampler") if (k := keyword(made, name)) is not None]
            held = {s for node in given for s in plan.value(node).sites() if s.made_by not in processes.SAMPLERS}
            dealing = [call for s in held for call in plan.store.details[s].nodes if _is_told_its_part(call)]
            if not dealing or not plan.module.is_active(made):
                continue
            told = f"`{short(dealing[0].func)}` deals between the processes itself"
            if context.options.target is Target.ACCELERATE:
                raise Unclear(f"{told}, and Accelerate would deal each part again", made)
            context.note(made, f"{told}: `prepare` leaves the division to it")


def _is_told_its_part(call: ast.Call) -> bool:
    """Whether what is made here is told its rank and the number of processes."""
    return {"rank", "num_replicas"} <= {k.arg for k in call.keywords}


def _elsewhere(context: Context) -> None:
    """A loader of another file that has a DistributedSampler there would be dealt twice."""
    plan = context.plan
    for site in sorted(plan.sharded, key=lambda s: s.line):
        for made in plan.store.details[site].nodes:
            if plan.module.is_active(made):
                continue
            given = keyword(made, "sampler")
            sites = plan.value(given.value).sites(Role.SAMPLER) if given is not None else frozenset()
            if any(s.made_by in processes.SAMPLERS for s in sites):
                raise Unclear(
                    f"a loader that `{site.path.rsplit('/', 1)[-1]}` makes (line {site.line}) has a DistributedSampler "
                    "there: prepare would deal its samples twice",
                    plan.training.loops[0].node,
                )


def _loader(context: Context, call: ast.Call, given: ast.keyword) -> None:
    plan = context.plan
    one = plan.value(given.value)
    optional = any(isinstance(a, Const) for a in one)
    made = [node for site in one.sites() for node in plan.store.details[site].nodes]
    shuffles = all(_shuffles(node) for node in made)
    own = keyword(call, "shuffle")
    alone = own is not None and _shuffles_alone(context, own.value)
    context.edit(RemoveArgument(call, given))
    context.gone.add(given)
    if optional:  # on one process the loader does what it did without a sampler
        if own is not None and not isinstance(own.value, ast.Constant):
            context.replace(own.value, str(alone))
        if alone == shuffles:
            context.migrated(call, "`prepare` deals the batches between the processes, without a sampler")
        elif shuffles:
            _shuffle(context, call, own, f"{context.accelerator(call)}.num_processes > 1")
            context.migrated(call, "shuffled over several processes only, as it was")
        else:
            context.review(call, "shuffled on one process only before; now it is on several as well")
        return
    if shuffles and context.plan.value(call).sites(Role.LOADER) & context.plan.training.trained_loaders:
        _shuffle(context, call, own, "True")
        context.review(
            call,
            "`prepare` deals the batches between the processes: the order is the loader's own shuffle, not the one "
            "that the DistributedSampler drew",
        )
    else:
        if own is not None and not isinstance(own.value, ast.Constant):
            context.replace(own.value, "False")
        context.migrated(call, "`prepare` deals the batches between the processes, in their order")


def _shuffle(context: Context, call: ast.Call, own: ast.keyword | None, text: str) -> None:
    if own is None:
        context.edit(AddArgument(call, text, name="shuffle"))
    elif ast.unparse(own.value) != text:
        context.replace(own.value, text)


def _shuffles(made: ast.Call) -> bool:
    """Whether a DistributedSampler shuffles (one that is told at run time is taken to)."""
    told = keyword(made, "shuffle")
    if told is None and len(made.args) > 3:
        return not (isinstance(made.args[3], ast.Constant) and made.args[3].value is False)
    return told is None or not (isinstance(told.value, ast.Constant) and told.value.value is False)


def _shuffles_alone(context: Context, node: ast.expr) -> bool:
    """What ``shuffle=`` is without a sampler: ``shuffle=(sampler is None)``, ``shuffle=not distributed``."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if context.plan.parallel.share(node) is Share.ALONE:
        return True
    if isinstance(node, ast.IfExp):  # shuffle=False if distributed else True
        share = context.plan.parallel.share(node.test)
        if share in (Share.SPREAD, Share.ALONE):
            return _shuffles_alone(context, node.orelse if share is Share.SPREAD else node.body)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is):
        return processes.is_sampler(context.plan.value(node.left))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return processes.is_sampler(context.plan.value(node.operand))
    told = context.plan.parallel.told_alone(node) if isinstance(node, ast.Name) else None
    if told is not None:
        return bool(told.value)
    raise Unclear("whether this loader shuffles depends on more than whether there is a DistributedSampler", node)


def _use(context: Context, node: ast.expr) -> None:
    """A use of the sampler that is left: its length is that of the set it deals; any other has no counterpart."""
    around = context.parent(node)
    if isinstance(around, ast.Call) and isinstance(around.func, ast.Name) and around.func.id == "len":
        loader = _loader_of(context, context.plan.value(node))
        if loader is not None:
            context.replace(node, f"{loader}.dataset")
            context.migrated(node, f"{short(around)} counts the samples of the whole set")
            return
    statement = context.plan.module.statement(node)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        if ast.unparse(statement.value.func) == "print" and own_statement(context.plan, statement.value):
            context.delete(statement)
            return
    raise Unclear("the DistributedSampler is used here in a way that has no counterpart", node)


def _loader_of(context: Context, sampler: Value) -> str | None:
    """The name of the one loader that has this sampler."""
    sites: frozenset[Site] = sampler.sites(Role.SAMPLER)
    found = set()
    for home in context.plan.homes:
        if home.role is not Role.LOADER:
            continue
        for site in home.sites:
            for made in context.plan.store.details[site].nodes:
                given = keyword(made, "sampler")
                if given is not None and context.plan.value(given.value).sites(Role.SAMPLER) == sites:
                    found.add(home.name)
    return found.pop() if len(found) == 1 else None


RULE = Rule(
    code="AM430",
    name="distributed-sampler",
    summary="`DistributedSampler` and `set_epoch` go; the loader shuffles itself and `prepare` deals its batches.",
    why="`prepare` gives each process its part of every batch. A loader whose sampler already did would be dealt "
    "twice: each process would see a part of its part.",
    before="sampler = DistributedSampler(data)\nloader = DataLoader(data, batch_size=32, sampler=sampler)\n"
    "sampler.set_epoch(epoch)",
    after="loader = DataLoader(data, batch_size=32, shuffle=True)",
    safety="Each sample is seen once an epoch, in another order than the DistributedSampler drew (a review finding "
    "says so where the script used it on one process too). The shuffle is new in each epoch without `set_epoch`.",
    apply=apply,
    order=9,
    essential=True,
)

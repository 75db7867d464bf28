"""AM445: what only the first process did stays so, except where all must take part."""

from __future__ import annotations

import ast
import sys

from accelerate_migrate.analysis.atoms import Role, Share
from accelerate_migrate.analysis.evaluation import Gather
from accelerate_migrate.edits import Unwrap, Wrap
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.calls import library_names
from accelerate_migrate.rules.once import writes_to_memory
from accelerate_migrate.rules.parallel_edits import asked

_KEPT_ELSEWHERE = frozenset(
    {"torch", "torchvision", "numpy", "tqdm", "wandb", "tensorboardX", "matplotlib"}
    | (sys.stdlib_module_names - {"subprocess", "smtplib", "ftplib"})
)
"""Libraries whose calls do nothing outside of a process, or have a rule that keeps them to one."""


def apply(context: Context) -> None:
    """Keep a guard that asks the accelerator, or open it where something in it is collective now."""
    parallel = context.plan.parallel
    if not parallel.active:
        return
    for node in context.plan.module.walk():
        if isinstance(node, ast.If) and context.may_change(node.test) and not context.is_gone(node):
            test = _main_part(context, node.test)
            if test is not None:
                _guard(context, node, test)


def _main_part(context: Context, test: ast.expr) -> ast.expr | None:
    """The part of a test that lets the main process through only: the test itself, or one side of its ``and``."""
    parallel = context.plan.parallel
    if parallel.share(test) is Share.MAIN:
        return test
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return next((part for part in test.values if parallel.share(part) is Share.MAIN), None)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) and _is_for_each_machine(context, test):
        return test
    return None


def _is_for_each_machine(context: Context, test: ast.BoolOp) -> bool:
    """``not multiprocessing or (multiprocessing and rank % devices == 0)``."""
    shares = [context.plan.parallel.share(part) for part in test.values]
    return set(shares) <= {Share.ALONE, Share.MAIN} and Share.MAIN in shares


def _guard(context: Context, node: ast.If, test: ast.expr) -> None:
    collective = [s for s in node.body if _is_collective(context, s)]
    if not collective or node.orelse:
        if not context.has_accelerator(node):
            return
        text = asked(context.accelerator(node), Share.MAIN)
        context.replace(test, text)
        context.gone.add(test)
        context.guards.add(node)
        context.migrated(node.test, f"{short(test)} -> {text}")
        return
    if not context.has_accelerator(node):
        return
    header = f"if {asked(context.accelerator(node), Share.MAIN)}:"
    _guard_rest(context, node.body, header)
    for statement in collective:
        _guard_sending(context, statement, set())
    _review_decisions(context, node)
    if test is node.test:
        context.edit(Unwrap(node))
    else:
        assert isinstance(node.test, ast.BoolOp)
        rest = [part for part in node.test.values if part is not test]
        holes = " and ".join(f"{{{i}}}" for i in range(len(rest)))
        context.replace(node.test, holes, *rest)
    context.gone.add(test)
    context.migrated(
        node.test, f"`if {short(test)}` goes: every process takes part in what is collective inside it, one writes"
    )


def _guard_rest(context: Context, block: list[ast.stmt], header: str) -> None:
    """Guard what is not collective in an opened guard, inside its ``if``s as well."""
    for statement in block:
        if _is_collective(context, statement):
            if isinstance(statement, ast.If):
                _guard_rest(context, statement.body, header)
                _guard_rest(context, statement.orelse, header)
        elif not _is_needed(context, statement) and not context.is_gone(statement):
            context.edit(Wrap((statement,), header))
            context.guards.add(statement)


def _guard_sending(context: Context, statement: ast.stmt, seen: set[ast.AST]) -> None:
    """Leave to the main process what an opened guard, or a function called there, sends out of the program.

    Only the first process came there; files and logs have rules of their own. ``seen`` are the functions looked at.
    """
    if context.is_gone(statement) or statement in context.guards:
        return
    if isinstance(statement, ast.Expr) and not _is_collective(context, statement) and _sends(context, statement):
        if context.has_accelerator(statement):
            context.guard(statement)
            context.migrated(statement, f"{short(statement.value)}: the main process does that still")
        else:
            context.review(statement, f"{short(statement.value)} ran on the first process only; now every one does")
        return
    inside = [part for part in ast.iter_child_nodes(statement) if isinstance(part, (ast.stmt, ast.ExceptHandler))]
    if not inside:
        calls = context.plan.training.store.calls
        called = [calls.get(node, set()) for node in ast.walk(statement) if isinstance(node, ast.Call)]
        for function in set().union(*called) - seen:
            seen.add(function)
            inside += getattr(function, "body", [])
    for part in inside:
        for inner in part.body if isinstance(part, ast.ExceptHandler) else [part]:
            if isinstance(inner, ast.stmt):
                _guard_sending(context, inner, seen)


def _sends(context: Context, statement: ast.stmt) -> bool:
    """Whether a statement calls a library for its effect alone, at once or in the program's functions."""
    for node in context.plan.training.reached([statement]):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            root: ast.expr = node.value
            while isinstance(root, (ast.Call, ast.Attribute)):
                root = root.func if isinstance(root, ast.Call) else root.value
            found = {name.partition(".")[0] for name in library_names(context.plan, root)}
            if found - _KEPT_ELSEWHERE:
                return True
    return False


def _review_decisions(context: Context, node: ast.If) -> None:
    """Name the ``if``s of an opened guard that go by what each process computes with the model by itself."""
    plan = context.plan
    own: set[str] = set()
    for statement in plan.module.walk(node):
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and statement.value is not None:
            computes = any(plan.training.forwards(n) & plan.prepared for n in plan.training.reached([statement.value]))
            if computes and not _gathers(context, statement):
                targets = [statement.target] if not isinstance(statement, ast.Assign) else statement.targets
                own |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    for inner in plan.module.walk(node):
        if isinstance(inner, ast.If) and inner is not node and _is_collective(context, inner):
            read = sorted({n.id for n in ast.walk(inner.test) if isinstance(n, ast.Name)} & own)
            if read:
                context.review(
                    inner.test,
                    f"only the first process computed `{read[0]}`; now each does, on data of its own, and decides by "
                    "its own number: reduce it first where parameters are spread over processes",
                )


def _gathers(context: Context, statement: ast.stmt) -> bool:
    """Whether a statement runs an evaluation loop whose numbers are those of all processes."""
    loops = {gather.loop.node for gather in context.plan.evaluations.gathers}
    return any(node in loops for node in context.plan.training.reached([statement]))


def _is_collective(context: Context, statement: ast.stmt) -> bool:
    """Whether a statement does what all processes must do together once it is migrated."""
    plan = context.plan
    gathers: list[Gather] = plan.evaluations.gathers
    loops = {gather.loop.node for gather in gathers}
    for node in plan.training.reached([statement]):
        if node in loops:
            return True
        if not isinstance(node, ast.Call):
            continue
        if node in plan.training.backwards:
            return True
        if "torch.save" in library_names(plan, node.func) and not writes_to_memory(context, node):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr == "state_dict":
            sites = plan.value(node.func.value).sites(Role.MODEL)
            if plan.any_prepared_at(sites, node):
                return True
    return False


def _is_needed(context: Context, statement: ast.stmt) -> bool:
    """Whether a statement makes what a later collective one reads, and does nothing else."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and library_names(context.plan, statement.value.func) == {
            "builtins.print"
        }
    return isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Import, ast.ImportFrom))


RULE = Rule(
    code="AM445",
    name="rank-guards",
    summary="`if rank == 0:` asks the accelerator, and opens where every process must take part.",
    why="A model whose parameters are spread over processes is put together by all of them: a state dict asked for by "
    "one process alone would wait for the others for ever. `accelerator.save` writes once by itself.",
    before="if dist.get_rank() == 0:\n    torch.save(model.module.state_dict(), args.out)",
    after="accelerator.save(accelerator.get_state_dict(model), args.out)",
    safety="Exact on one process. What is not collective inside an opened guard stays with the main process, and what "
    "functions called there send out of the program (an upload) does too.",
    apply=apply,
    order=12,
    essential=True,
)

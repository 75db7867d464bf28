"""AM100: the accelerator is made once and reaches every function that needs it."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Origin, Tensor
from accelerate_migrate.analysis.modules import DEFINITIONS, LOOPS
from accelerate_migrate.analysis.placement import NAME, Creation, Placement
from accelerate_migrate.analysis.scopes import passes_self
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.edits import (
    AddArgument,
    AddImport,
    AddParameter,
    Delete,
    Insert,
    RenameParameter,
    ReplaceStatement,
)
from accelerate_migrate.rules.base import Context, Rule, short
from accelerate_migrate.rules.layout import assigned_call


def apply(context: Context) -> None:
    """Create the accelerator and thread it; runs last, when every rule has said where it needs one."""
    placement = context.plan.placement
    _thread(context, placement)
    for creation in placement.creations:
        _create(context, creation)
        tree = context.plan.module.root(creation.scope)
        context.edit(AddImport(context.options.target.module, "Accelerator", tree))
        for name in sorted(context.imports.get(creation, ())):
            context.edit(AddImport(context.options.target.module, name, tree))


def _thread(context: Context, placement: Placement) -> None:
    store = context.plan.store
    for function, name in placement.device_parameters.items():
        assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        context.edit(RenameParameter(function, name, NAME))
        context.migrated(function, f"`{function.name}` takes the accelerator in the place of `{name}`")
    for function in sorted(placement.needed - set(placement.device_parameters), key=lambda f: getattr(f, "lineno", 0)):
        assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        method = isinstance(context.parent(function), ast.ClassDef)
        context.edit(AddParameter(function, 1 if method else 0, NAME))
        for call in store.callers[function]:
            context.edit(AddArgument(call, context.accelerator(call), index=1 if method and passes_self(call) else 0))
        context.migrated(function, f"`{function.name}` is given the accelerator as its first argument")
    for owner in sorted(placement.carriers, key=lambda c: c.lineno):
        _keep(context, owner)


def _keep(context: Context, owner: ast.ClassDef) -> None:
    """Let the objects of a class keep the accelerator that their constructor is given."""
    initialiser = next(s for s in owner.body if isinstance(s, ast.FunctionDef) and s.name == "__init__")
    if context.plan.placement.is_visible_in(initialiser) or _base_keeps(context, owner, initialiser):
        return
    first = initialiser.body[0]
    text = f"{initialiser.args.args[0].arg}.{NAME} = {NAME}"
    if (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)) or _calls_base(first):
        context.edit(Insert(first, text, after=True))
    else:
        context.edit(Insert(first, text))
    context.migrated(owner, f"objects of `{owner.name}` keep the accelerator")


def _base_keeps(context: Context, owner: ast.ClassDef, initialiser: ast.FunctionDef) -> bool:
    """Whether the constructor hands the accelerator to that of a base, which keeps it for the same object."""
    placement = context.plan.placement
    callees = context.plan.store.calls
    return any(
        callee in placement.needed and context.parent(callee) in placement.carriers - {owner}
        for statement in initialiser.body
        if _calls_base(statement)
        for callee in callees.get(statement.value, ())  # type: ignore[attr-defined]
    )


def _calls_base(statement: ast.stmt) -> bool:
    """Whether a statement is ``super().__init__(...)``, behind which a constructor's own work starts."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
        and statement.value.func.attr == "__init__"
    )


def _create(context: Context, creation: Creation) -> None:
    definition = creation.definition
    name = context.plan.placement.text_in(creation)
    arguments = {key: text for (made, key), text in context.constructor.items() if made is creation}
    cpu_only = False
    if _stays_on_cpu(context):
        arguments = {"cpu": "True", **arguments}
        cpu_only = True
    elif creation.cpu is not None:
        arguments = {"cpu": creation.cpu, **arguments}
    made = f"{name} = Accelerator({', '.join(f'{k}={v}' for k, v in arguments.items())})"
    first = _first_use(context, creation)
    near = definition.statement if definition is not None else first
    laid_out = assigned_call(name, "Accelerator", arguments, near.col_offset if near is not None else 0)
    text = "\n".join([laid_out.replace("{", "{{").replace("}", "}}"), *context.after_creation.get(creation, ())])
    ready = context.ready.get(creation, 0)
    early = definition is not None and definition.statement.lineno <= ready  # its arguments come later
    if definition is not None and not early and (first is None or first.lineno >= definition.statement.lineno):
        context.edit(ReplaceStatement(definition.statement, text))
        context.migrated(definition.statement, f"the choice of a device becomes `{made}`")
        asked = _asked_for_by_value(context, definition.statement)
        named = short(asked) if asked is not None else (creation.cpu or "").removesuffix(" is None")
        if asked is not None or named != (creation.cpu or ""):
            context.note(
                definition.statement,
                f"which device `{named}` names is not asked any more: the launcher says it (--gpu_ids, --cpu), and "
                "without one it is the first GPU, where there is any",
            )
        return
    assert first is not None
    if first.lineno <= ready:
        raise Unclear(f"the accelerator is needed here, before line {ready} settles its arguments", first)
    context.edit(_standing_apart(context, first, text))
    if cpu_only:
        context.note(
            first,
            f"`{made}`: this script chooses no device and works with tensors that `prepare` does not move, so it "
            "stays on the CPU; to run on others, drop cpu=True and put those on accelerator.device",
        )
    else:
        context.migrated(first, f"`{made}` is made here")
    if definition is not None:
        context.edit(Delete(definition.statement))


def _asked_for_by_value(context: Context, statement: ast.stmt) -> ast.expr | None:
    """What a device is named by where that is no constant: ``torch.device(config["device"])``."""
    for call in ast.walk(statement):
        if isinstance(call, ast.Call) and context.plan.training.library_names(call.func) == {"torch.device"}:
            for argument in call.args[:1]:
                parts = [argument.body, argument.orelse] if isinstance(argument, ast.IfExp) else [argument]
                for part in parts:
                    if not isinstance(part, ast.Constant):
                        return part
    return None


def _stays_on_cpu(context: Context) -> bool:
    """Whether a script that knows no device trains on tensors of its own: elsewhere they would be left behind."""
    plan = context.plan
    if plan.definitions or any(
        isinstance(node, ast.Attribute) and node.attr in ("cuda", "accelerator", "xpu", "mps", "device")
        for node in plan.module.walk()
    ):
        return False
    if not all(plan.training.drawn_for(call) for call in plan.training.backwards):
        return True
    if any(plan.store.details[site].owns_tensors for site in plan.training.optimizers):
        return True
    looping = [loop.node for loop in plan.training.loops]
    whole = [loop.node for loop in plan.training.loops if not loop.loaders <= plan.sharded]
    if any(plan.training.forwards(node) & plan.prepared for node in plan.training.reached(whole)):
        return True
    made = [node for node in plan.training.reached(looping) if isinstance(node, ast.Call)]
    given = [
        argument
        for node in plan.module.walk()
        if isinstance(node, ast.Call)
        for site in plan.training.forwards(node) & plan.prepared
        if plan.is_prepared_at(site, node)
        for argument in node.args
    ]
    return any(
        isinstance(atom, Tensor) and atom.origin is Origin.FRESH and not atom.loaders and not atom.models
        for node in (*made, *given)
        for atom in plan.value(node)
    )


def _standing_apart(context: Context, first: ast.stmt, text: str) -> Insert:
    """Put the creation in front of a statement; where a blank line stands there, it gets one on both sides."""
    if first in context.plan.parallel.gone:
        # it takes that statement's place, in front of what is lifted out of it
        return Insert(first, text, after=first not in context.plan.parallel.lifted)
    block = context.plan.module.block(first)
    module = context.plan.module.module_of(first)
    assert module is not None
    lines = module.lines
    above = first.lineno - 2
    while above >= 0 and lines[above].lstrip().startswith(b"#"):
        above -= 1
    index = block.index(first)
    if index == 0 or above < 0 or lines[above].strip():
        return Insert(first, text)
    previous = block[index - 1]
    if previous.end_lineno == first.lineno or previous.lineno == (block[index - 2].end_lineno if index > 1 else 0):
        return Insert(first, text)  # several statements share a line
    if context.is_gone(previous):
        return Insert(first, text)
    if isinstance(previous, DEFINITIONS):
        return Insert(first, text)
    return Insert(previous, "\n" + text, after=True)


def _first_use(context: Context, creation: Creation) -> ast.stmt | None:
    """The first statement of the accelerator's scope that needs it, lifted out of blocks where others need it too."""
    module = context.plan.module
    leading = [s for node in context.plan.placement.uses for s in creation.leading_to(node)]
    leading += [
        home.bindings[0] for group in context.plan.groups if group.scope is creation.scope for home in group.homes
    ]
    if not leading:
        return None
    first = min(leading, key=lambda s: (s.lineno, s.col_offset))
    if creation.definition is not None and creation.definition.statement.lineno <= first.lineno:
        return first
    while not all(_within(module.block(first), s, context) for s in leading):
        parent = module.parents[first]
        while not isinstance(parent, ast.stmt):
            parent = module.parents[parent]
        first = parent
    loops = [
        around
        for around in module.ancestors(first)
        if isinstance(around, LOOPS) and module.function(around) is creation.scope
    ]
    return loops[-1] if loops and loops[-1].lineno > creation.floor else first


def _within(block: list[ast.stmt], statement: ast.stmt, context: Context) -> bool:
    return statement in block or any(a in block for a in context.plan.module.ancestors(statement))


RULE = Rule(
    code="AM100",
    name="accelerator",
    summary="One `Accelerator` is made where the script sets itself up, and reaches the functions that need it.",
    why="It replaces the choice of a device: in `main()`, or at module level where the script is all module level. "
    "Functions that took a device take the accelerator in its place; others that need it get it as their first "
    "argument.",
    before='device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")\n'
    "train(model, device, loader, optimizer)",
    after="accelerator = Accelerator(cpu=args.no_cuda)\ntrain(model, accelerator, loader, optimizer)",
    safety="Exact. A function that is passed around as a value is not given a parameter; the places in it that need "
    "the accelerator get a finding.",
    apply=apply,
    order=90,
    essential=True,
)

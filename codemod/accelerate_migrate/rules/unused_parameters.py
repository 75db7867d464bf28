"""AM185: DistributedDataParallel is told about parameters that a backward may leave without a gradient."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import FunctionRef, Role, Site
from accelerate_migrate.analysis.library import is_layer
from accelerate_migrate.analysis.values import BOTTOM
from accelerate_migrate.rules.base import Context, Rule


def apply(context: Context) -> None:
    """Ask for ``find_unused_parameters`` where an output is thrown away or a layer is never used."""
    discarded = [node for node in context.plan.module.walk() if _discards_output(context, node)]
    unused = [site for site in sorted(context.plan.prepared, key=lambda s: s.line) if _has_unused_layer(context, site)]
    if not discarded and not unused:
        return
    for creation in context.plan.placement.creations:
        context.handle_with(creation, "DistributedDataParallelKwargs", {"find_unused_parameters": "True"})
    for node in discarded:
        context.migrated(node, "an output of the model is not used: parameters behind it may get no gradient")
    for site in unused:
        details = context.plan.store.details[site]
        for call in details.nodes:
            context.migrated(call, f"a layer of `{site.made_by}` is never used: its parameters get no gradient")


def _discards_output(context: Context, node: ast.AST) -> bool:
    """``score, _ = model(x)`` in a training loop, where layers of their own stand behind what is thrown away."""
    if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)):
        return False
    names = node.targets[0].elts
    dropped = {i for i, t in enumerate(names) if isinstance(t, ast.Name) and t.id.startswith("_")}
    if not dropped or not context.plan.training.in_training_loop(node):
        return False
    for site in context.plan.training.forwards(node.value) & context.plan.prepared:
        details = context.plan.store.details[site]
        found = context.plan.store.class_attribute(details.class_def, "forward") if details.class_def else BOTTOM
        for forward in found.of(FunctionRef):
            if any(_has_own_layers(forward.node, result, dropped) for result in _returned(forward.node, len(names))):
                return True
    return False


def _returned(forward: ast.AST, count: int) -> list[ast.Tuple]:
    """The tuples of this length that a forward returns."""
    returned = [n.value for n in ast.walk(forward) if isinstance(n, ast.Return)]
    return [value for value in returned if isinstance(value, ast.Tuple) and len(value.elts) == count]


def _has_own_layers(forward: ast.AST, result: ast.Tuple, dropped: set[int]) -> bool:
    """Whether a dropped element is computed by a layer, ``self.name``, that no kept element needs."""
    layers = [_layers(forward, element, set()) for element in result.elts]
    kept = set().union(*(found for i, found in enumerate(layers) if i not in dropped), set())
    return any(layers[i] - kept for i in dropped)


def _layers(forward: ast.AST, node: ast.expr, seen: set[str]) -> set[str]:
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
            found.add(part.attr)
        elif isinstance(part, ast.Name) and part.id not in seen:
            seen.add(part.id)
            for statement in ast.walk(forward):
                if isinstance(statement, ast.Assign) and any(
                    isinstance(n, ast.Name) and n.id == part.id for t in statement.targets for n in ast.walk(t)
                ):
                    found |= _layers(forward, statement.value, seen)
    return found


def _has_unused_layer(context: Context, site: Site) -> bool:
    """Whether a class of this file makes a layer, ``self.name = nn.…``, that none of its methods reads."""
    details = context.plan.store.details[site]
    if (
        site.role is not Role.MODEL
        or details.class_def is None
        or details.class_def.module not in context.plan.module.active
    ):
        return False
    layers = {name for name, held in details.fields.items() if any(is_layer(s.made_by) for s in held.sites(Role.MODEL))}
    read = {
        n.attr
        for n in ast.walk(details.class_def.node)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and ast.unparse(n.value) == "self"
    }
    named = {n.value for n in ast.walk(details.class_def.node) if isinstance(n, ast.Constant)}
    bases = context.plan.store.base_classes(details.class_def)[1:]
    return bool(layers - read - named) and all(getattr(b, "name", "") == "torch.nn.Module" for b in bases)


RULE = Rule(
    code="AM185",
    name="unused-parameters",
    summary="Where a backward may leave parameters without a gradient, DistributedDataParallel looks for them.",
    why="Over several processes, gradients are averaged when every parameter has one. An output that is thrown away, "
    "or a layer that is never used, would leave the processes waiting or raise an error.",
    before='device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n...\n'
    "for x, y in loader:\n    score, _ = model(x)\n    loss = criterion(score, y)\n    loss.backward()",
    after="accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])\n"
    "...\nfor x, y in loader:\n    score, _ = model(x)\n    loss = criterion(score, y)\n    accelerator.backward(loss)",
    safety="Exact: it only costs a little time on several processes.",
    apply=apply,
    order=16,
    essential=True,
)

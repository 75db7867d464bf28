"""Which files train together: the files of a unit are migrated, or left, as one."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from accelerate_migrate.analysis.atoms import FunctionRef
from accelerate_migrate.analysis.modules import Files, Module, is_main_block, name_said
from accelerate_migrate.analysis.store import Store
from accelerate_migrate.analysis.training import Training

_APART = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, eq=False)
class Unit:
    """Files that train together: ``modules`` run a backward or lead to one; ``helpers`` hold what they call."""

    modules: frozenset[Module]
    helpers: frozenset[Module]


def find_units(program: Files, store: Store) -> list[Unit]:
    """The units of a program, in the order of its files."""
    training = Training(program, store)
    together: list[set[Module]] = []
    for call in training.backwards:
        members = {program.module_of(scope) for scope in training.callers_of(program.function(call))}
        joined = {module for module in members if module is not None}
        for other in [group for group in together if group & joined]:
            joined |= other
            together.remove(other)
        together.append(joined)
    units = [Unit(frozenset(group), _helpers(training, group)) for group in together]
    order = {module: index for index, module in enumerate(program.active)}
    return sorted(units, key=lambda unit: min(order.get(module, len(order)) for module in unit.modules))


def _helpers(training: Training, modules: set[Module]) -> frozenset[Module]:
    """The other files whose code the unit's files run."""
    found: set[Module] = set()
    for node in training.reached([module.tree for module in modules]):
        if isinstance(node, ast.Call):
            for callee in training.store.calls.get(node, ()):
                module = training.module.module_of(callee)
                if module is not None and module not in modules:
                    found.add(module)
    return frozenset(found)


def unit_of(units: list[Unit], module: Module | None) -> list[Unit]:
    """The units that a file belongs to: those it trains in, else those it helps; all where neither is known."""
    trains = [unit for unit in units if module in unit.modules]
    return trains or [unit for unit in units if module in unit.helpers] or units


def code_apart(training: Training, unit_modules: Iterable[Module]) -> dict[Module, list[ast.stmt]]:
    """Functions of helper files, and their ``if __name__ == "__main__":``, that no code of these units leads to.

    They belong to other runs: of an evaluation script that shares functions with a training script, say.
    """
    files = training.module
    own = set(unit_modules)
    helpers = [module for module in files.active if module not in own]
    queue: list[ast.AST] = [module.tree for module in own]
    queue += [s for module in helpers for s in module.tree.body if not isinstance(s, _APART) and not is_main_block(s)]
    led_to: set[ast.AST] = set()
    while queue:
        for node in files.walk(queue.pop()):
            if isinstance(node, (ast.Name, ast.Attribute)):
                for atom in training.value(node).of(FunctionRef):
                    if atom.node not in led_to:
                        led_to.add(atom.node)
                        queue.append(atom.node)
    return {
        module: [
            s
            for s in module.tree.body
            if is_main_block(s)
            or (isinstance(s, _APART) and s not in led_to)
            or (isinstance(s, ast.ClassDef) and is_never_named(training, s))
        ]
        for module in helpers
    }


def is_never_named(training: Training, definition: ast.ClassDef | ast.FunctionDef) -> bool:
    """Whether nothing says the name of a class or a function outside of it, registers it or makes or calls it."""
    if definition.decorator_list or training.store.callers.get(definition):
        return False
    made = training.store.instances(definition) if isinstance(definition, ast.ClassDef) else []
    if any(training.store.details[site].nodes for site in made):
        return False
    inside = sum(name_said(node) == definition.name for node in training.module.walk(definition))
    return training.module.said[definition.name] == inside

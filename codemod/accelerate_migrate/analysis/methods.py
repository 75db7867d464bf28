"""Calls of library methods on what the analysis knows: models, optimizers, loaders, tensors, containers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from accelerate_migrate.analysis import library, library_arrays, processes, tensors
from accelerate_migrate.analysis.atoms import (
    UNKNOWN,
    Array,
    Atom,
    Belonging,
    Bound,
    DeviceValue,
    Library,
    Loaded,
    Mapping_,
    Object,
    Origin,
    Parameters,
    Process,
    Role,
    Sequence_,
    Site,
    StateDict,
    Tensor,
)
from accelerate_migrate.analysis.frames import Arguments, Frame
from accelerate_migrate.analysis.values import (
    ANY,
    BOTTOM,
    Value,
    element,
    flatten,
    is_device,
    join,
    names_cuda,
    sequence,
    value,
)

if TYPE_CHECKING:
    from accelerate_migrate.analysis.calls import Calls


_GIVES_PARTS = ("modules", "named_modules", "children", "named_children")
_NUMBER_OF_DEVICE = re.compile("(local_|global_)?rank|(gpu|cuda|device)(_?(id|index|idx|num|no))?")


def root_sites(one: Value) -> frozenset[Site]:
    """The models that a value is, or is a part of (``model.fc``, ``model.features[0]``)."""
    found: set[Site] = set()
    for atom in one:
        if isinstance(atom, Object) and atom.site.role is Role.MODEL:
            found.add(atom.site)
        elif isinstance(atom, Bound):
            found |= root_sites(atom.owner)
    return frozenset(found)


def owned_models(arguments: Iterable[Value]) -> frozenset[Site]:
    """The models whose parameters stand among these arguments, containers looked through."""
    found: set[Site] = set()
    for one in arguments:
        for atom in flatten(one):
            if isinstance(atom, (Parameters, Belonging)):
                found |= atom.models
            elif isinstance(atom, Bound):  # model.fc.weight
                found |= root_sites(value(atom))
            elif (
                isinstance(atom, Tensor) and atom.origin is Origin.PARAMETER
            ):  # model.kernel, of a class of the program
                found |= atom.models
    return frozenset(found)


def loose_tensors(arguments: Iterable[Value]) -> frozenset[Tensor]:
    """The tensors among these arguments that no model holds, containers looked through."""
    atoms = (atom for one in arguments for atom in flatten(one))
    return frozenset(atom for atom in atoms if isinstance(atom, Tensor) and atom.origin is not Origin.PARAMETER)


def call_method(calls: Calls, method: Bound, node: ast.Call, given: Arguments, frame: Frame) -> Value:
    """What ``owner.name(...)`` may return."""
    return join(_call_on(calls, atom, method, node, given, frame) for atom in method.owner) or ANY


def _call_on(calls: Calls, atom: Atom, method: Bound, node: ast.Call, given: Arguments, frame: Frame) -> Value:
    name = method.name
    if isinstance(atom, Object):
        if atom.site.role is Role.SCALER and name == "scale":
            return given.get(0, "outputs") or ANY
        if atom.site.role is Role.OPTIMIZER and name == "add_param_group":
            calls.add_group(atom.site, given)
        return _object_method(atom, name)
    if isinstance(atom, Tensor):
        return tensors.method(atom, name, given.positional, given.keywords)
    if isinstance(atom, Bound):
        return _part_method(atom, name, given)
    if isinstance(atom, Sequence_):
        return _sequence_method(calls, atom, name, node, given, frame)
    if isinstance(atom, Mapping_):
        return _mapping_method(calls, atom, name, node, given, frame)
    if isinstance(atom, Array):
        return value(atom) if name in library_arrays.ARRAY_METHODS else ANY
    if isinstance(atom, Parameters) and name in ("append", "extend", "insert") and isinstance(node.func, ast.Attribute):
        added = [value(atom), *given.positional[-1:]]
        calls.assign(node.func.value, value(Parameters(owned_models(added)), *loose_tensors(added)), frame)
        return ANY
    if isinstance(atom, (Parameters, StateDict, Loaded)):
        return value(atom) if name in ("to", "cuda", "cpu", "copy", "get", "data") else ANY
    if atom is UNKNOWN and name in ("parameters", "named_parameters"):
        return value(Parameters(frozenset()), UNKNOWN)
    if name == "format" and names_cuda(value(atom)):  # "cuda:{}".format(n)
        return value(DeviceValue(is_string=True, kind="cuda"))
    if name == "add_argument":
        _remember_flag(calls, given, frame)
    tensor = tensors.combined(given.all())
    if atom is UNKNOWN and tensor is not None and tensor.origin not in (Origin.FRESH, Origin.ARRAY):
        return value(Tensor(Origin.OTHER, loaders=tensor.loaders, models=tensor.models), UNKNOWN)
    return ANY


def _remember_flag(calls: Calls, given: Arguments, frame: Frame) -> None:
    """``add_argument("--device", default="cuda")``: whatever ``parse_args`` returns has a device under that name.

    ``add_argument("--gpu", type=int)`` is the number of one, and ``--local_rank`` that of the process on its machine.
    """
    numbered = value(Library("builtins.int")) == given.keywords.get("type")
    for flag in (v.const() for v in given.positional):
        known = processes.flag(flag)
        if known is not None:
            calls.remember_flag(frame.module, str(flag).lstrip("-").replace("-", "_"), value(Process(known)))
            return
    if not is_device(given.keywords.get("default", BOTTOM)) and not numbered:
        return
    for flag in (v.const() for v in given.positional):
        if isinstance(flag, str) and flag.startswith("--"):
            name = flag.lstrip("-").replace("-", "_")
            if not numbered or _NUMBER_OF_DEVICE.fullmatch(name):
                device = value(DeviceValue(is_string=not numbered, index=numbered))
                calls.remember_flag(frame.module, name, device)


def _object_method(atom: Object, name: str) -> Value:
    role = atom.site.role
    if role in (Role.MODEL, Role.LOSS):
        if name in library.SELF_RETURNING:
            return value(atom)
        if name == "parameters":
            return value(Parameters(frozenset([atom.site])))
        if name == "named_parameters":
            return value(Sequence_((), sequence([ANY, value(Parameters(frozenset([atom.site])))])))
        if name in _GIVES_PARTS:
            return _parts(value(atom), name)
    if name == "state_dict":
        return value(StateDict(frozenset([atom.site])))
    if role is Role.LOADER and name == "__iter__":
        return value(atom)
    return ANY


def _parts(whole: Value, name: str) -> Value:
    """The modules that ``model.modules()`` and its kin go through: each is a part of the model."""
    part = value(Bound(whole, "_modules"))
    return value(Sequence_((), sequence([ANY, part]) if name.startswith("named_") else part))


def _part_method(part: Bound, name: str, given: Arguments) -> Value:
    """A method of a part of something: ``model.fc.parameters()``, ``x.shape``, ``loader.dataset.something()``."""
    models = root_sites(value(part))
    if models and name == "parameters":
        return value(Parameters(models))
    if models and name == "named_parameters":
        return value(Sequence_((), sequence([ANY, value(Parameters(models))])))
    if models and name in _GIVES_PARTS:
        return _parts(value(part), name)
    if models and name in library.SELF_RETURNING:
        return value(part)
    tensor = tensors.combined(given.all())
    if models and tensor is not None:
        return value(Tensor(Origin.OUTPUT, tensor.reduction, tensor.loaders, tensor.models | models))
    return ANY


def _sequence_method(calls: Calls, atom: Sequence_, name: str, node: ast.Call, given: Arguments, frame: Frame) -> Value:
    held = join(atom.held)
    if name in ("append", "extend", "insert") and given.positional:
        added = element(given.positional[0]) if name == "extend" else given.positional[-1]
        if isinstance(node.func, ast.Attribute):
            calls.assign(node.func.value, value(Sequence_((), held | added, is_tuple=False)), frame)
        return ANY
    return held if name == "pop" else ANY


def _mapping_method(calls: Calls, atom: Mapping_, name: str, node: ast.Call, given: Arguments, frame: Frame) -> Value:
    held = join(atom.held)
    if name == "items":
        return value(Sequence_((), sequence([ANY, held])))
    if name == "values":
        return value(Sequence_((), held))
    if name in ("get", "pop") and given.positional:
        return element(value(atom), given.positional[0].const())
    if name == "update":
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        added = [m for v in given.positional for m in v if isinstance(m, Mapping_)]
        if isinstance(receiver, ast.Name):
            entries = dict(atom.items)
            entries.update(given.keywords)
            for mapping in added:
                entries.update(mapping.items)
            open_ended = len(added) < len(given.positional) or given.unknown
            rest = (atom.rest or BOTTOM) | ANY if open_ended else atom.rest
            calls.bind(receiver.id, value(Mapping_(tuple(entries.items()), rest)), frame)
        return ANY
    return ANY

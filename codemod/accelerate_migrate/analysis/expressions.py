"""The abstract value of every kind of expression."""

from __future__ import annotations

import ast
from collections.abc import Callable

from accelerate_migrate.analysis import processes, tensors
from accelerate_migrate.analysis.atoms import (
    UNKNOWN,
    Array,
    Atom,
    Availability,
    BaseOf,
    Bound,
    ClassRef,
    Const,
    DeviceValue,
    FunctionRef,
    Library,
    Mapping_,
    ModuleRef,
    Number,
    Object,
    Origin,
    Parameters,
    Process,
    Reduction,
    Role,
    Sequence_,
    Share,
    Tensor,
)
from accelerate_migrate.analysis.calls import Calls
from accelerate_migrate.analysis.frames import Frame
from accelerate_migrate.analysis.library import canonical
from accelerate_migrate.analysis.methods import loose_tensors, owned_models, root_sites
from accelerate_migrate.analysis.modules import Program
from accelerate_migrate.analysis.scopes import is_decorated
from accelerate_migrate.analysis.values import (
    ANY,
    BOTTOM,
    NONE,
    Value,
    element,
    flatten,
    join,
    names_cuda,
    sequence,
    value,
)

_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


class Expressions(Calls):
    """Evaluates expressions; each node keeps the join of its values over all contexts."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._evaluators: dict[type[ast.expr], Callable[..., Value] | None] = {}
        self._constants: dict[ast.Constant, Value] = {}

    def expression(self, node: ast.expr, frame: Frame) -> Value:
        """What this expression may be."""
        kind = type(node)
        try:
            run = self._evaluators[kind]
        except KeyError:
            run = self._evaluators[kind] = getattr(self, "_eval_" + kind.__name__, None)
        if run is not None:
            result: Value = run(node, frame)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.expression(child, frame)
            result = ANY
        return self.note(node, result)

    def _eval_Constant(self, node: ast.Constant, frame: Frame) -> Value:
        found = self._constants.get(node)
        if found is None:
            found = self._constants[node] = value(Const(node.value))
        return found

    def _eval_Name(self, node: ast.Name, frame: Frame) -> Value:
        return self.lookup(node.id, frame)

    def _eval_Attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        owner = self.expression(node.value, frame)
        return self.attribute(owner, node.attr, node, frame)

    def attribute(self, owner: Value, name: str, node: ast.Attribute | None, frame: Frame) -> Value:
        """What ``owner.name`` may be."""
        if len(owner.atoms) == 1:
            (atom,) = owner.atoms
            return self._attribute_of(atom, name, node, frame)
        return join([self._attribute_of(atom, name, node, frame) for atom in owner.atoms])

    def _attribute_of(self, atom: Atom, name: str, node: ast.Attribute | None, frame: Frame) -> Value:
        if isinstance(atom, ModuleRef):
            known = self.stored(atom.module.tree, name)
            if known is None and atom.module.path.endswith("__init__.py"):
                inner = self.program.find(name, atom.module, level=1)
                return value(ModuleRef(inner)) if inner is not None else ANY
            return known or ANY
        if isinstance(atom, Library):
            dotted = f"{atom.name}.{name}"
            self.read(dotted)
            if dotted in self.imported:
                return value(ModuleRef(self.imported[dotted]))
            return value(Library(canonical(dotted)))
        if isinstance(atom, Object):
            return self._object_attribute(atom, name, frame)
        if isinstance(atom, Tensor):
            if name in ("data", "grad", "T", "mT", "real"):
                return value(atom)
            if name == "device":
                return value(DeviceValue())
            return value(Bound(value(atom), name))
        if isinstance(atom, ClassRef):
            return join(_of_class(found, atom) for found in self.class_attribute(atom, name)) or ANY
        if isinstance(atom, BaseOf):
            return self._base_attribute(atom, name, frame)
        if isinstance(atom, Array) and name == "T":
            return value(atom)
        if atom is UNKNOWN and node is not None:
            known = self.attribute_of_unknown(frame.module, self.text(node))
            return known if known is not None else value(Bound(ANY, name))
        return value(Bound(value(atom), name))

    def _object_attribute(self, atom: Object, name: str, frame: Frame) -> Value:
        details = self.details[atom.site]
        self.read((atom.site, name))
        known = details.fields.get(name)
        if known is not None:
            return known
        if details.class_def is not None:
            defined = self.class_attribute(details.class_def, name)
            if defined.atoms:
                return join(self._bound_method(a, atom, frame) for a in defined)
        if name == "module" and atom.site.role is Role.MODEL:
            return value(atom)
        return value(Bound(value(atom), name))

    def _base_attribute(self, atom: BaseOf, name: str, frame: Frame) -> Value:
        """``super().name``: what the bases define."""
        for base in self.base_classes(atom.class_ref)[1:]:
            body = self.class_bodies.get(base.node, {}) if isinstance(base, ClassRef) else {}
            if name in body:
                return join(
                    self._bound_method(found, owner, frame)
                    for owner in atom.owner
                    for found in body[name]
                    if isinstance(owner, Object)
                )
        return value(Bound(atom.owner, name))

    def _bound_method(self, defined: Atom, owner: Object, frame: Frame) -> Value:
        if not isinstance(defined, FunctionRef):
            return value(defined)
        if is_decorated(defined.node, "classmethod"):
            made_of = self.details[owner.site].class_def
            return value(FunctionRef(defined.node, defined.module, value(made_of) if made_of is not None else ANY))
        ref = FunctionRef(defined.node, defined.module, value(owner))
        if is_decorated(defined.node, "property"):
            return self.call(value(ref), None, frame)
        return value(ref)

    def _eval_Subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        owner = self.expression(node.value, frame)
        if isinstance(node.slice, ast.Slice):
            for part in (node.slice.lower, node.slice.upper, node.slice.step):
                if part is not None:
                    self.expression(part, frame)
            return join(self._sliced(atom) for atom in owner)
        index = self.expression(node.slice, frame)
        if processes.is_environment(owner):
            return processes.from_environment(index.const()) or ANY
        results: list[Value] = []
        for atom in owner:
            if isinstance(atom, Bound) and atom.name == "shape":
                results.extend(self._shape(t, index.const()) for t in atom.owner)
            elif isinstance(atom, Bound) and atom.name == "__dict__":
                results.append(ANY)
            elif isinstance(atom, Library) and atom.name.endswith(".__dict__"):
                results.append(value(Library(atom.name.removesuffix("__dict__") + "?")))
            elif root_sites(value(atom)):  # model[1]: a part of the model, of which no more is known
                results.append(value(Bound(value(atom), "__getitem__"), UNKNOWN))
            else:
                results.append(element(value(atom), index.const()))
        return join(results)

    def _shape(self, atom: Atom, index: object) -> Value:
        if not isinstance(atom, Tensor):
            return ANY
        rows = index == 0 and atom.reduction is Reduction.ROWS
        return value(Number(Reduction.COUNT if rows else Reduction.OTHER, atom.loaders if rows else frozenset()))

    def _sliced(self, atom: Atom) -> Value:
        if isinstance(atom, Sequence_):
            return value(Sequence_((), join(atom.held), atom.is_tuple))
        return element(value(atom))

    def _eval_Tuple(self, node: ast.Tuple | ast.List, frame: Frame) -> Value:
        items, rest = [], None
        for item in node.elts:
            if isinstance(item, ast.Starred):
                rest = element(self.expression(item.value, frame)) | (rest or BOTTOM)
            else:
                items.append(self.expression(item, frame))
        if rest is not None:
            return value(Sequence_((), join([*items, rest]), isinstance(node, ast.Tuple)))
        return sequence(items, is_tuple=isinstance(node, ast.Tuple))

    _eval_List = _eval_Tuple

    def _eval_Dict(self, node: ast.Dict, frame: Frame) -> Value:
        items: dict[object, Value] = {}
        rest: Value | None = None
        for key, item in zip(node.keys, node.values, strict=True):
            one = self.expression(item, frame)
            if key is None:
                rest = element(one) | (rest or BOTTOM)
                continue
            named = self.expression(key, frame).const()
            if isinstance(named, (str, int)):
                items[named] = one
            else:
                rest = one | (rest or BOTTOM)
        return value(Mapping_(tuple(items.items()), rest))

    def _eval_Set(self, node: ast.Set, frame: Frame) -> Value:
        return value(Sequence_((), join(self.expression(item, frame) for item in node.elts), is_tuple=False))

    def _eval_BoolOp(self, node: ast.BoolOp, frame: Frame) -> Value:
        parts = [self.expression(part, frame) for part in node.values]
        spoken = processes.both(node.op, parts)
        if spoken is not None:
            return spoken
        available = [p for p in parts if any(isinstance(a, Availability) for a in p)]
        if available and isinstance(node.op, ast.And):
            rests = [a.rest for p in available for a in p if isinstance(a, Availability) and a.rest]
            exact = all(a.exact for p in available for a in p.of(Availability))
            rests += [self.text(n) for n, p in zip(node.values, parts, strict=True) if p not in available]
            return value(Availability(" and ".join(rests), exact))
        if available:
            return value(Availability("", exact=False))
        return join(parts)

    def _eval_UnaryOp(self, node: ast.UnaryOp, frame: Frame) -> Value:
        operand = self.expression(node.operand, frame)
        if isinstance(node.op, ast.USub):
            constant = operand.const()
            if isinstance(constant, (int, float)) and not isinstance(constant, bool):
                return value(Const(-constant))
            return operand
        return (processes.opposite(operand) if isinstance(node.op, ast.Not) else None) or ANY

    def _eval_BinOp(self, node: ast.BinOp, frame: Frame) -> Value:
        left, right = self.expression(node.left, frame), self.expression(node.right, frame)
        if isinstance(node.op, (ast.Add, ast.Mod)) and names_cuda(left):  # "cuda:" + str(n), "cuda:%d" % n
            return value(DeviceValue(is_string=True, kind="cuda"))
        return self._binary(left, right, node.op)

    def _binary(self, left: Value, right: Value, operator: ast.operator) -> Value:
        spoken = processes.computed(left, operator, right)
        if spoken is not None:
            return spoken
        atoms = [a for side in (left, right) for a in side]
        if isinstance(operator, ast.Add) and any(isinstance(a, Parameters) for a in atoms):
            if not any(isinstance(a, Tensor) for a in atoms):  # list(a.parameters()) + [b.weight, tensor]
                return value(Parameters(owned_models([left, right])), *loose_tensors([left, right]))
        containers = [a for side in (left, right) for a in side if isinstance(a, Sequence_)]
        if containers and isinstance(operator, ast.Add):
            items = join(one for container in containers for one in container.held)
            return value(Sequence_((), items, containers[0].is_tuple))
        return tensors.arithmetic(left, right, _OPERATORS.get(type(operator), "?"))

    def augmented(self, node: ast.AugAssign, frame: Frame) -> Value:
        """The value of the target of ``target op= value`` after it ran."""
        if isinstance(node.target, ast.Name):
            before = self.lookup(node.target.id, frame)
        elif isinstance(node.target, ast.Attribute):
            owner = self.expression(node.target.value, frame)
            before = self.attribute(owner, node.target.attr, node.target, frame)
        else:
            before = ANY
            self.expression(node.target.value, frame)
            self.expression(node.target.slice, frame)
        return self._binary(before, self.expression(node.value, frame), node.op)

    def _eval_Compare(self, node: ast.Compare, frame: Frame) -> Value:
        parts = [self.expression(part, frame) for part in (node.left, *node.comparators)]
        if processes.is_left_over(node, parts):
            return value(Process(Share.NEVER))
        spoken = processes.compared(parts[0], node.ops[0], parts[1]) if len(parts) == 2 else None
        if spoken is not None:
            return spoken
        tensor = tensors.combined(parts)
        return value(tensor) if tensor is not None else ANY

    def _eval_IfExp(self, node: ast.IfExp, frame: Frame) -> Value:
        test = self.expression(node.test, frame)
        chosen, other = self.expression(node.body, frame), self.expression(node.orelse, frame)
        if chosen.const() is True and other.const() is False and test.only(Availability):
            return test
        return chosen | other

    def _eval_NamedExpr(self, node: ast.NamedExpr, frame: Frame) -> Value:
        result = self.expression(node.value, frame)
        self.bind(node.target.id, result, frame)
        return result

    def _eval_Lambda(self, node: ast.Lambda, frame: Frame) -> Value:
        return value(FunctionRef(node, frame.module))

    def _eval_Starred(self, node: ast.Starred, frame: Frame) -> Value:
        return self.expression(node.value, frame)

    def _eval_Await(self, node: ast.Await, frame: Frame) -> Value:
        return self.expression(node.value, frame)

    def _eval_Yield(self, node: ast.Yield, frame: Frame) -> Value:
        frame.yields.append(self.expression(node.value, frame) if node.value else NONE)
        return ANY

    def _eval_YieldFrom(self, node: ast.YieldFrom, frame: Frame) -> Value:
        frame.yields.append(element(self.expression(node.value, frame)))
        return ANY

    def _eval_JoinedStr(self, node: ast.JoinedStr, frame: Frame) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.expression(part.value, frame)
                if part.format_spec is not None:
                    self.expression(part.format_spec, frame)
        starts = node.values[0] if node.values else None
        if isinstance(starts, ast.Constant) and str(starts.value).startswith("cuda"):
            return value(DeviceValue(is_string=True, kind="cuda"))
        return ANY

    # ---- comprehensions

    def _comprehension(
        self,
        node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
        frame: Frame,
        item: Callable[[], Value],
    ) -> Value:
        outside = dict(frame.env)
        for generator in node.generators:
            iterated = self.expression(generator.iter, frame)
            self._bind_quietly(generator.target, element(iterated), frame)
            for condition in generator.ifs:
                self.expression(condition, frame)
        result = item()
        frame.env = outside
        return result

    def _bind_quietly(self, target: ast.expr, one: Value, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            frame.env[target.id] = one
            self.note(target, one)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, item in enumerate(target.elts):
                self._bind_quietly(item, element(one, index), frame)

    def _eval_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame) -> Value:
        item = self._comprehension(node, frame, lambda: self.expression(node.elt, frame))
        return value(Sequence_((), item, is_tuple=False))

    _eval_SetComp = _eval_ListComp
    _eval_GeneratorExp = _eval_ListComp

    def _eval_DictComp(self, node: ast.DictComp, frame: Frame) -> Value:
        def item() -> Value:
            self.expression(node.key, frame)
            return self.expression(node.value, frame)

        return value(Mapping_((), self._comprehension(node, frame, item)))

    # ---- targets

    def assign(self, target: ast.expr, one: Value, frame: Frame) -> None:
        """Bind a target to a value."""
        self.note(target, one)
        if isinstance(target, ast.Name):
            self.bind(target.id, one, frame)
        elif isinstance(target, (ast.Tuple, ast.List)):
            starred = next((i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)), None)
            for index, item in enumerate(target.elts):
                if isinstance(item, ast.Starred):
                    self.assign(item.value, value(Sequence_((), element(one), is_tuple=False)), frame)
                elif starred is not None and index > starred:
                    self.assign(item, element(one, index - len(target.elts)), frame)
                else:
                    self.assign(item, element(one, index), frame)
        elif isinstance(target, ast.Attribute):
            self._assign_attribute(target, one, frame)
        elif isinstance(target, ast.Subscript):
            self._assign_item(target, one, frame)

    def _assign_attribute(self, target: ast.Attribute, one: Value, frame: Frame) -> None:
        for atom in self.expression(target.value, frame):
            if isinstance(atom, Object):
                self.set_field(atom.site, target.attr, _owned_by(atom, one))
            elif atom is UNKNOWN or isinstance(atom, Bound):
                self.remember_attribute(frame.module, self.text(target), one)

    def _assign_item(self, target: ast.Subscript, one: Value, frame: Frame) -> None:
        held = self.expression(target.value, frame)
        key = self.expression(target.slice, frame).const()
        changed = join(_with_item(atom, key, one) for atom in held)
        if isinstance(target.value, ast.Name):
            self.bind(target.value.id, changed, frame)
        elif isinstance(target.value, ast.Attribute):
            for owner in self.expression(target.value.value, frame):
                if isinstance(owner, Object):
                    self.set_field(owner.site, target.value.attr, changed)


def _owned_by(model: Object, one: Value) -> Value:
    """A value as an attribute of a model: a parameter made for it is the model's own, and is where the model is."""
    if model.site.role is not Role.MODEL or Parameters(frozenset()) not in one.atoms:
        return one
    return value(Tensor(Origin.PARAMETER, models=frozenset([model.site])))


def _of_class(defined: Atom, owner: ClassRef) -> Value:
    """What a class has under a name, as it is found on the class: its class methods are given the class."""
    if isinstance(defined, FunctionRef) and is_decorated(defined.node, "classmethod"):
        return value(FunctionRef(defined.node, defined.module, value(owner)))
    return value(defined)


def _with_item(atom: Atom, key: object, one: Value) -> Value:
    if isinstance(atom, Mapping_):
        items = dict(atom.items)
        if isinstance(key, (str, int)):
            items[key] = one
            return value(Mapping_(tuple(items.items()), atom.rest))
        return value(Mapping_(atom.items, one | (atom.rest or BOTTOM)))
    if isinstance(atom, Sequence_):
        return value(Sequence_((), join([*atom.held, one]), atom.is_tuple))
    if isinstance(atom, Array) and any(isinstance(a, Tensor) for a in flatten(one)):
        return ANY
    return value(atom)

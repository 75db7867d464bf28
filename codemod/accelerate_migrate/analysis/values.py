"""The lattice of the abstract interpretation: what a value may be in training.

A ``Value`` is a set of alternatives (atoms); joining two values keeps the alternatives of both. ``Unknown`` is an
alternative like any other, so "maybe a model, maybe something else" stays visible and a rule can ask for certainty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

from accelerate_migrate.analysis.atoms import (
    UNKNOWN,
    Atom,
    Batches,
    ClassRef,
    Const,
    DeviceValue,
    FunctionRef,
    Library,
    Loaded,
    Mapping_,
    Number,
    Object,
    Origin,
    Parameters,
    Reduction,
    Role,
    Sequence_,
    Site,
    Tensor,
    Unknown,
)

MAX_ALTERNATIVES = 10
MAX_OBJECTS = 60
MAX_DEPTH = 4

A = TypeVar("A")
_CONTAINERS = frozenset({Sequence_, Mapping_})


class Value:
    """A set of alternatives; the empty set is the value of code that cannot be reached.

    Never changed once made. Hundreds of thousands are made and compared, so the hash is kept, and so is the depth.
    """

    __slots__ = ("_depth", "_hash", "atoms")

    def __init__(self, atoms: frozenset[Atom]) -> None:
        self.atoms = atoms
        self._hash: int | None = None
        self._depth: int | None = None

    @property
    def depth(self) -> int:
        """How deeply containers are nested in it."""
        if self._depth is None:
            deepest = 0
            for atom in self.atoms:
                if type(atom) in _CONTAINERS:
                    deepest = max([deepest, *(1 + one.depth for one in atom.held)])  # type: ignore[union-attr]
            self._depth = deepest
        return self._depth

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Value) and self.atoms == other.atoms)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.atoms)
        return self._hash

    def __repr__(self) -> str:
        return f"Value({self.atoms!r})"

    def __iter__(self) -> Iterator[Atom]:
        return iter(self.atoms)

    def __or__(self, other: Value) -> Value:
        if self is other:
            return self
        own, more = self.atoms, other.atoms
        if own >= more:
            return self
        if more >= own:
            return other
        return Value(_bounded(own | more))

    def of(self, kind: type[A]) -> list[A]:
        """The alternatives of one kind."""
        return [atom for atom in self.atoms if isinstance(atom, kind)]

    def only(self, kind: type[A]) -> bool:
        """Whether every alternative (``None`` aside) is of this kind, and there is one."""
        rest = [atom for atom in self.atoms if not (isinstance(atom, Const) and atom.value is None)]
        return bool(rest) and all(isinstance(atom, kind) for atom in rest)

    def may_be_unknown(self) -> bool:
        """Whether nothing is known about some alternative."""
        return not self.atoms or UNKNOWN in self.atoms

    def sites(self, *roles: Role) -> frozenset[Site]:
        """The allocation sites of these roles among the alternatives."""
        return frozenset(a.site for a in self.atoms if isinstance(a, Object) and (not roles or a.site.role in roles))

    def only_role(self, role: Role) -> bool:
        """Whether every alternative (``None`` aside) is an object of this role, and there is one."""
        return self.only(Object) and self.sites() == self.sites(role)

    def const(self) -> object:
        """The constant that this value is, or ``UNKNOWN``."""
        if len(self.atoms) == 1:
            (atom,) = self.atoms
            if isinstance(atom, Const):
                return atom.value
        return UNKNOWN


def _bounded(atoms: frozenset[Atom]) -> frozenset[Atom]:
    if len(atoms) > MAX_ALTERNATIVES:
        objects = [a for a in atoms if isinstance(a, (Object, FunctionRef, ClassRef))]
        if len(objects) < len(atoms) or len(atoms) > MAX_OBJECTS:
            atoms = frozenset([*objects[:MAX_OBJECTS], UNKNOWN])
    return atoms


BOTTOM = Value(frozenset())
ANY = Value(frozenset([UNKNOWN]))
NONE = Value(frozenset([Const(None)]))


def value(*atoms: Atom) -> Value:
    """A value with these alternatives. Containers nested too deeply become unknown, so that loops reach a fixpoint."""
    result = Value(_bounded(frozenset(atoms)))
    for atom in atoms:
        if type(atom) in _CONTAINERS:
            return ANY if result.depth > MAX_DEPTH else result
    return result


def join(values: Iterable[Value]) -> Value:
    """The least value that allows for all of these."""
    result = BOTTOM
    for one in values:
        if one is not result:
            result = result | one
    return result


def sequence(items: Iterable[Value], *, is_tuple: bool = True) -> Value:
    """A tuple or list of known length."""
    return value(Sequence_(tuple(items), None, is_tuple))


def flatten(one: Value) -> Iterator[Atom]:
    """Every atom of a value, those inside containers included."""
    for atom in one.atoms:
        yield atom
        if isinstance(atom, (Sequence_, Mapping_)):
            for item in atom.held:
                yield from flatten(item)


def element(one: Value, index: object = UNKNOWN) -> Value:
    """The value of ``one[index]``, or of an unknown element."""
    results = []
    for atom in one.atoms:
        if isinstance(atom, Sequence_):
            if type(index) is int and -len(atom.items) <= index < len(atom.items):
                results.append(atom.items[index])
            else:
                results.append(join(atom.held))
        elif isinstance(atom, Mapping_):
            known = dict(atom.items)
            if not isinstance(index, Unknown) and index in known:
                results.append(known[index])
            else:
                chosen = [] if atom.rest is None and known and all(map(_is_callable, known.values())) else [ANY]
                results.append(atom.rest if atom.rest else join([*known.values(), *chosen]))
        elif isinstance(atom, (Tensor, Loaded, Parameters)):
            results.append(value(atom))
        elif isinstance(atom, Batches):
            batch = value(Tensor(Origin.BATCH, Reduction.ROWS, atom.loaders))
            results.append(sequence([value(Number()), batch]) if atom.counted else batch)
        elif isinstance(atom, Object) and atom.site.role is Role.LOADER:
            results.append(value(Tensor(Origin.BATCH, Reduction.ROWS, frozenset([atom.site]))))
        else:
            results.append(ANY)
    return join(results) if results else BOTTOM


def _is_callable(one: Value) -> bool:
    """Whether a value is a function or a class: a dict of these is a registry, and its other keys are errors."""
    return bool(one.atoms) and all(isinstance(atom, (Library, FunctionRef, ClassRef)) for atom in one.atoms)


_DEVICE_NAME = re.compile(r"(cuda|cpu|mps|xpu|npu|hpu)(:\d+)?")


def is_device(one: Value) -> bool:
    """Whether every alternative is a device: a ``torch.device``, or a string that names one."""
    found = False
    for atom in one.atoms:
        if (isinstance(atom, DeviceValue) and not atom.index) or (
            isinstance(atom, Const) and isinstance(atom.value, str) and _DEVICE_NAME.fullmatch(atom.value)
        ):
            found = True
        else:
            return False
    return found


def is_index(one: Value) -> bool:
    """Whether a value is a number (``None`` aside), which where a device is asked for is that of a GPU."""
    numbers = [a for a in one if not (isinstance(a, Const) and a.value is None)]
    return bool(numbers) and all(
        isinstance(a, Number)
        or (isinstance(a, DeviceValue) and a.index)
        or (isinstance(a, Const) and type(a.value) is int)
        for a in numbers
    )


def names_cuda(one: Value) -> bool:
    """Whether a value is the beginning of a CUDA device's name, of which the index is still to come."""
    text = one.const()
    return isinstance(text, str) and re.fullmatch(r"cuda:(%[sd]|\{\w*\})?", text) is not None

"""The lattice of the abstract interpretation: what a value may be in training.

A ``Value`` is a set of alternatives (atoms); joining two values keeps the alternatives of both. ``Unknown`` is an
alternative like any other, so "maybe a model, maybe something else" stays visible and a rule can ask for certainty.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from accelerate_migrate.analysis.modules import Module

MAX_ALTERNATIVES = 10
MAX_OBJECTS = 60
MAX_DEPTH = 4


class Role(str, Enum):
    """What an allocated object is in training."""

    MODEL = "model"
    OPTIMIZER = "optimizer"
    LOADER = "loader"
    SCHEDULER = "scheduler"
    LOSS = "loss"
    SAMPLER = "sampler"
    SCALER = "grad scaler"
    AUTOCAST = "autocast"
    WRITER = "writer"
    LOGGER = "logger"
    INSTANCE = "instance"


@dataclass(frozen=True, slots=True)
class Site:
    """One place in a program that makes an object: the object's identity in the analysis."""

    role: Role
    path: str
    line: int
    column: int
    made_by: str  # the qualified name called, or the class
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.role, self.path, self.line, self.column, self.made_by)))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"<{self.role.value} {self.made_by.rsplit('.', 1)[-1]} line {self.line}>"


@dataclass(slots=True)
class Details:
    """What is known about the object of a site, gathered while interpreting (grows only)."""

    nodes: set[ast.Call] = field(default_factory=set)
    owners: Value | None = None  # optimizer: the models whose parameters it owns; scheduler: its optimizer
    owns_tensors: bool = False  # optimizer: it was given tensors, whatever they belong to
    class_def: ClassRef | None = None
    fields: dict[str, Value] = field(default_factory=dict)
    reduction: Reduction | None = None  # loss: what its call returns
    has_parameters: bool = True
    data_parallel: bool = False
    wrappers: set[ast.Call] = field(default_factory=set)  # model: the calls of DistributedDataParallel on it
    own_collate: bool = False  # loader: batches are put together by a function of the script


class Unknown:
    """Nothing is known. A single instance, ``UNKNOWN``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "?"


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class Const:
    """A Python constant."""

    value: object

    def __hash__(self) -> int:
        return hash((type(self.value), repr(self.value)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Const) and type(other.value) is type(self.value) and repr(other.value) == repr(self.value)
        )


@dataclass(frozen=True, slots=True)
class Object:
    """The object made at a site."""

    site: Site


class Reduction(str, Enum):
    """How a value relates to the samples of a batch."""

    ROWS = "rows"  # one row a sample
    SUM = "sum"  # summed over the samples
    MEAN = "mean"  # averaged over the samples
    COUNT = "count"  # the number of samples
    MIXED = "mixed"  # made of sums over the samples and something else
    OTHER = "other"  # not a plain sum, or not known


class Origin(str, Enum):
    """Where a tensor comes from, as far as its device is concerned."""

    BATCH = "batch"  # straight from a loader: on the loader's device
    OUTPUT = "output"  # computed on the device by a model
    FRESH = "fresh"  # made on the spot, on the CPU unless told
    ARRAY = "array"  # no tensor any more: NumPy's, or a list
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor: its origin, the loaders and models it was computed from, its relation to the batch."""

    origin: Origin
    reduction: Reduction = Reduction.OTHER
    loaders: frozenset[Site] = frozenset()
    models: frozenset[Site] = frozenset()


@dataclass(frozen=True, slots=True)
class Number:
    """A Python number computed from tensors (``.item()``, ``.size(0)``, ``len``)."""

    reduction: Reduction = Reduction.OTHER
    loaders: frozenset[Site] = frozenset()
    models: frozenset[Site] = frozenset()


@dataclass(frozen=True, slots=True)
class Array:
    """An array that NumPy made and into which no tensor went."""


@dataclass(frozen=True, slots=True)
class DeviceValue:
    """A device: a string (``is_string``), a ``torch.device``, or (``index``) the number of a GPU, as of ``--gpu 1``."""

    is_string: bool = False
    kind: str = ""  # "cuda", "cpu" or "" where it depends
    index: bool = False


@dataclass(frozen=True, slots=True)
class Availability:
    """A condition ``accelerator available [and rest]``; ``rest`` is source text, "" for none."""

    rest: str = ""
    exact: bool = True  # whether rest is all that remains (an ``or`` or a call makes it inexact)


class Share(str, Enum):
    """What a number or a condition says about the processes of a run."""

    RANK = "rank"  # the number of this process
    LOCAL_RANK = "local rank"  # its number on its machine
    WORLD = "world size"  # how many processes there are
    DEVICES = "devices"  # how many devices this machine has
    MAIN = "main"  # whether this is the main process
    OTHERS = "others"  # whether it is not
    SPREAD = "spread"  # whether there are several processes
    ALONE = "alone"  # whether there is one
    NEVER = "never"  # a condition that no run of the migrated script meets


@dataclass(frozen=True, slots=True)
class Process:
    """A number or condition that speaks of the processes of a run."""

    share: Share


@dataclass(frozen=True, slots=True)
class Batches:
    """An iterator over loaders: each item is a batch, or ``(index, batch)`` where ``counted``."""

    loaders: frozenset[Site]
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Sequence_:
    """A tuple or a list: the known elements, or one value for every element (``rest``)."""

    items: tuple[Value, ...]
    rest: Value | None = None
    is_tuple: bool = True

    @property
    def held(self) -> list[Value]:
        """The value of each element that is known, and the one for all others."""
        return [*self.items, *([self.rest] if self.rest is not None else [])]


@dataclass(frozen=True, slots=True)
class Mapping_:
    """A dict: values of literal keys, and one value for any other key."""

    items: tuple[tuple[object, Value], ...]
    rest: Value | None = None

    @property
    def held(self) -> list[Value]:
        """The value of each key that is known, and the one for all others."""
        return [*(one for _, one in self.items), *([self.rest] if self.rest is not None else [])]


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """A function of the program (``owner`` is the object a method is bound to)."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: Module
    owner: Value | None = None


@dataclass(frozen=True, slots=True)
class ClassRef:
    """A class of the program."""

    node: ast.ClassDef
    module: Module


@dataclass(frozen=True, slots=True)
class Library:
    """Something of an imported library, by its qualified name (``torch.nn.Linear``)."""

    name: str


@dataclass(frozen=True, slots=True)
class ModuleRef:
    """A module of the program."""

    module: Module


@dataclass(frozen=True, slots=True)
class Bound:
    """A library method taken from a value: ``model.parameters``, ``x.view``."""

    owner: Value
    name: str


@dataclass(frozen=True, slots=True)
class BaseOf:
    """``super()`` in a method of a class: its object, seen as one of the bases."""

    owner: Value
    class_ref: ClassRef


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of models (``model.parameters()`` and what is made of it)."""

    models: frozenset[Site]


@dataclass(frozen=True, slots=True)
class Belonging:
    """Something, not known what, that a method of models gave: parameters, where an optimizer takes it."""

    models: frozenset[Site]


@dataclass(frozen=True, slots=True)
class StateDict:
    """The state dict of an object."""

    sites: frozenset[Site]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What ``torch.load`` returned, or a part of it; the place of the call."""

    path: str
    line: int
    column: int


Atom: TypeAlias = (
    Unknown
    | Const
    | Object
    | Tensor
    | Number
    | Array
    | DeviceValue
    | Availability
    | Process
    | Batches
    | Sequence_
    | Mapping_
    | FunctionRef
    | ClassRef
    | Library
    | ModuleRef
    | Bound
    | BaseOf
    | Parameters
    | Belonging
    | StateDict
    | Loaded
)
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
        elif isinstance(atom, (Tensor, Loaded)):
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

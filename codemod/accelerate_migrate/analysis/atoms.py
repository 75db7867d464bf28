"""The atoms of the abstract interpretation: everything that one alternative of a value can be.

Each says of a thing what matters in training: which object it is, what a tensor was computed from, which process asks.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from accelerate_migrate.analysis.modules import Module
    from accelerate_migrate.analysis.values import Value


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
    owns_tensors: bool = False  # optimizer: it was given tensors that no model holds
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
    PARAMETER = "parameter"  # of a model, and where that is
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

"""How an accelerator reaches the code that needs it: as a variable, a parameter or an attribute."""

from __future__ import annotations

import ast
from collections.abc import Container
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from accelerate_migrate.analysis.atoms import ClassRef, FunctionRef, Library, ModuleRef
from accelerate_migrate.analysis.devices import (
    DeviceDefinition,
)
from accelerate_migrate.analysis.library import DATASETS, HANDING_ON
from accelerate_migrate.analysis.modules import Files
from accelerate_migrate.analysis.scopes import is_decorated
from accelerate_migrate.analysis.settings import last_override
from accelerate_migrate.analysis.training import Training

NAME = "accelerator"


@dataclass(eq=False)
class Creation:
    """One place that makes an accelerator: a script, the function that sets its training up, a trainer's method."""

    training: Training
    scope: ast.AST
    definition: DeviceDefinition | None  # the device choice that it replaces
    cpu: str | None = None  # the argument ``cpu=`` that keeps the script's own choice
    chosen_at: int = 0  # the line that makes this choice

    @cached_property
    def cpu_reads(self) -> frozenset[str]:
        """The sources of the names and attributes that the argument ``cpu=`` reads."""
        tree = ast.parse(self.cpu or "")
        return frozenset(ast.unparse(n) for n in ast.walk(tree) if isinstance(n, (ast.Name, ast.Attribute)))

    @cached_property
    def floor(self) -> int:
        """The line behind which the accelerator can be made: its arguments exist, and so does its import."""
        override = last_override(self.scope) if isinstance(self.scope, ast.Module) else None
        if override is not None:
            return override.end_lineno or 0
        if self.cpu is None:
            return (
                _end_of_imports(self.scope) if isinstance(self.scope, ast.Module) else getattr(self.scope, "lineno", 0)
            )
        lines = [
            self.training.module.statement(n).end_lineno or 0
            for n in self.training.module.walk(self.scope)
            if isinstance(n, (ast.Name, ast.Attribute))
            and isinstance(n.ctx, ast.Store)
            and ast.unparse(n) in self.cpu_reads
            and n.lineno < self.chosen_at
        ]
        return max(lines, default=0)

    def leading_to(self, node: ast.AST) -> list[ast.stmt]:
        """The statements of the accelerator's scope at which this node may first run."""
        return self.training.leading_to(node, self.scope)


@dataclass(eq=False)
class Placement:
    """The scopes that make an accelerator, and the functions and classes that are given it.

    ``device_parameters`` are parameters that only ever hold the device: the accelerator takes their place. ``carriers``
    are classes that keep it as ``self.accelerator``.
    """

    training: Training
    creations: list[Creation]
    device_parameters: dict[ast.AST, str] = field(default_factory=dict)
    needed: set[ast.AST] = field(default_factory=set)  # functions that use the accelerator
    carriers: set[ast.ClassDef] = field(default_factory=set)
    uses: set[ast.AST] = field(default_factory=set)  # the nodes that asked for it
    _reachable: dict[ast.AST, bool] = field(default_factory=dict)

    @property
    def module(self) -> Files:
        """The files of the placement."""
        return self.training.module

    @property
    def cpu_reads(self) -> frozenset[str]:
        """The sources of what the arguments ``cpu=`` read."""
        return frozenset().union(*(creation.cpu_reads for creation in self.creations))

    def available(self, node: ast.AST) -> bool:
        """Whether code at this node can name the accelerator (it may have to be passed there)."""
        if not self.module.is_active(node) or not self.reaches(self._host(node)):
            return False
        return all(
            statement.lineno > creation.floor for creation in self.creations for statement in creation.leading_to(node)
        )

    def use(self, node: ast.AST) -> str:
        """The source of the accelerator at this node; remembers that it is needed there."""
        self.uses.add(node)
        host = self._host(node)
        self._need(host)
        return self._source(host)

    def _host(self, node: ast.AST) -> ast.AST:
        """The function whose own names or ``self`` the node sees: the outermost one around it, or the file."""
        function: ast.AST = self.module.function(node)
        for around in self.module.ancestors(function):
            if self._makes(function) is not None:
                break
            if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
                function = around
        return function

    def _makes(self, function: ast.AST) -> Creation | None:
        return next((c for c in self.creations if c.scope is function), None)

    def _source(self, host: ast.AST) -> str:
        owner = self._method_of(host)
        if owner is None:
            return NAME
        creation = self._makes(host)
        if creation is None and getattr(host, "name", "") == "__init__":
            return NAME  # its parameter
        if creation is None and self.is_visible_in(host):
            return NAME
        assert isinstance(host, (ast.FunctionDef, ast.AsyncFunctionDef))
        return f"{host.args.args[0].arg}.{NAME}"

    def text_in(self, creation: Creation) -> str:
        """The source of the accelerator in the scope that makes it."""
        return self._source(creation.scope)

    def _method_of(self, function: ast.AST) -> ast.ClassDef | None:
        """The class of a method that has a ``self``."""
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or not function.args.args:
            return None
        parent = self.module.parents.get(function)
        if not isinstance(parent, ast.ClassDef) or any(
            is_decorated(function, name) for name in ("staticmethod", "classmethod")
        ):
            return None
        return parent

    # ---- what it takes

    def _need(self, function: ast.AST) -> None:
        if function in self.needed or self.is_visible_in(function):
            return
        owner = self._method_of(function)
        if owner is not None and getattr(function, "name", "") != "__init__":
            if any(self._method_of(c.scope) is not None and self._shares_self(c, owner) for c in self.creations):
                return
            holder = self._holder(owner)
            if holder is not None:
                self.carriers.add(holder)
                self._need(_required(_initialiser(holder)))
            return
        self.needed.add(function)
        for call in self.training.store.callers.get(function, ()):
            self._need(self._host(call))

    def is_visible_in(self, function: ast.AST) -> bool:
        """Whether a function sees the accelerator without being given it: the scope that makes it, or one inside it."""
        for creation in self.creations:
            if isinstance(creation.scope, ast.Module):
                if creation.scope is function or self.module.root(function) is creation.scope:
                    return True
            elif function is creation.scope or creation.scope in self.module.ancestors(function):
                return True
        return False

    # ---- whether it can be had

    def reaches(self, function: ast.AST) -> bool:
        """Whether a function sees the accelerator or can be given it at all its calls."""
        if self.is_visible_in(function):
            return True
        if isinstance(function, ast.Module):
            return False
        if function not in self._reachable:
            self._reachable[function] = False  # a cycle alone reaches nothing
            self._reachable[function] = self._can_have(function)
        return self._reachable[function]

    def _can_have(self, function: ast.AST) -> bool:
        assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        parent = self.module.parents.get(function)
        if not isinstance(parent, ast.ClassDef):
            return self._keeps_its_parameters(function) and self._can_be_given(function)
        owner = self._method_of(function)
        if owner is None or self._is_model(owner):
            return False
        if function.name == "__init__":
            return not self._class_escapes(owner) and self._can_be_given(function)
        creation = next(
            (c for c in self.creations if self._method_of(c.scope) is not None and self._shares_self(c, owner)), None
        )
        if creation is not None:
            if getattr(creation.scope, "name", "") == "__init__":
                return True
            calls = self.training.store.callers.get(function, set())
            return bool(calls) and all(
                self._is_made_before(creation, call) or self.reaches(self._host(call)) for call in calls
            )
        holder = self._holder(owner)
        return holder is not None and self.reaches(_required(_initialiser(holder)))

    def _is_made_before(self, creation: Creation, call: ast.Call) -> bool:
        """Whether the method that makes the accelerator has run on the object of a call: ``t.init(); t.run()``."""
        module = self.module
        if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
            return False
        name, here = call.func.value.id, module.function(call)
        path: list[ast.AST] = [call, *module.ancestors(call)]
        for made in self.training.store.callers.get(creation.scope, set()):
            if module.function(made) is not here or not isinstance(made.func, ast.Attribute):
                continue
            statement = module.parents[made]
            if ast.unparse(made.func.value) != name or not isinstance(statement, ast.Expr):
                continue
            block = module.block(statement)
            behind = block[block.index(statement) + 1 :]
            bound = (n for n in module.walk(here) if isinstance(n, ast.Name) and n.id == name)
            rebound = any(isinstance(n.ctx, ast.Store) and n.lineno > statement.lineno for n in bound)
            if any(around in behind for around in path) and not rebound:
                return True
        return False

    def _keeps_its_parameters(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """Whether a call still reaches the function itself: its decorators are those of torch that hand all on."""
        for decorator in function.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if not self.training.value(called).only(Library) or not self.training.library_names(called) <= HANDING_ON:
                return False
        return True

    def _shares_self(self, creation: Creation, owner: ast.ClassDef) -> bool:
        """Whether a method of ``owner`` runs on the objects whose method makes the accelerator."""
        return self.are_related(self._method_of(creation.scope), owner)

    def are_related(self, one: ast.ClassDef | None, other: ast.ClassDef | None) -> bool:
        """Whether one of two classes is the other, or derives from it."""
        return one is not None and other is not None and (one in self._family(other) or other in self._family(one))

    def _family(self, node: ast.ClassDef) -> list[ast.ClassDef]:
        """A class and its bases in the program, nearest first."""
        module = self.module.module_of(node)
        if module is None:
            return [node]
        bases = self.training.store.base_classes(ClassRef(node, module))
        return [base.node for base in bases if isinstance(base, ClassRef)]

    def _holder(self, owner: ast.ClassDef) -> ast.ClassDef | None:
        """The class, ``owner`` or its farthest base, whose constructor every object of ``owner`` goes through."""
        found = next(iter(self._constructed(owner)), None)
        if found is None:
            return None
        for base in self._constructed(found)[1:]:
            calls = self.training.store.callers.get(_required(_initialiser(base)), set())
            if any(call in calls for call in self.module.walk(_initialiser(found))):
                found = base
        calls = self.training.store.callers.get(_required(_initialiser(found)), set())
        for other in self._subclasses(owner):
            own = _initialiser(other)
            if other is not found and own is not None and not any(c in calls for c in self.module.walk(own)):
                return None  # a subclass that does not call the constructor
        return found

    def _constructed(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        """The classes among ``owner`` and its bases that have a constructor which may be given the accelerator."""
        return [
            base
            for base in self._family(owner)
            if _initialiser(base) is not None and self.module.is_active(base) and not self._is_model(base)
        ]

    def _subclasses(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        return [n for n in self.module.walk() if isinstance(n, ast.ClassDef) and owner in self._family(n)]

    def _is_model(self, owner: ast.ClassDef) -> bool:
        """Whether objects of a class know nothing of training, or are what is trained: they get no accelerator."""
        module = self.module.module_of(owner)
        if module is None or self.training.store.class_role(ClassRef(owner, module)) is not None:
            return True
        bases = self.training.store.base_classes(ClassRef(owner, module))
        return any(isinstance(base, Library) and base.name in DATASETS for base in bases)

    def _class_escapes(self, owner: ast.ClassDef) -> bool:
        """Whether a class is used beyond calling it and deriving from it, so that not all its objects are known."""
        for node in self.module.walk():
            if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
                continue
            if not any(isinstance(a, ClassRef) and a.node is owner for a in self.training.value(node)):
                continue
            parent = self.module.parents[node]
            called = isinstance(parent, ast.Call) and (parent.func is node or _asks_kind(parent))
            looked_into = isinstance(parent, ast.Attribute)
            if not (called or looked_into or isinstance(parent, (ast.ClassDef, ast.arg))):
                return True
        return False

    def _can_be_given(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        calls = self.training.store.callers.get(function, set())
        if not calls or (function.name != "__init__" and escapes(self.training, function)):
            return False
        return all(self.module.is_active(call) and self.reaches(self._host(call)) for call in calls)


def _initialiser(node: ast.ClassDef) -> ast.FunctionDef | None:
    return next((s for s in node.body if isinstance(s, ast.FunctionDef) and s.name == "__init__"), None)


def _required(function: ast.FunctionDef | None) -> ast.FunctionDef:
    assert function is not None, "a class without a constructor of its own"
    return function


def _asks_kind(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in ("isinstance", "issubclass", "super")


def escapes(
    training: Training, function: ast.FunctionDef | ast.AsyncFunctionDef, besides: Container[ast.AST] = ()
) -> bool:
    """Whether a function is used other than by calling it by name, so that its calls are not all known.

    Uses among ``besides``, such as what starts it in processes, are known too.
    """
    known = {call.func for call in training.store.callers.get(function, ())}
    for node in training.module.walk():
        if not isinstance(node, (ast.Name, ast.Attribute)) or node in known or node in besides:
            continue
        if isinstance(node.ctx, ast.Load):
            if any(isinstance(a, FunctionRef) and a.node is function for a in training.value(node)):
                return True
    return not all(isinstance(f, ast.Name) or _of_module(training, f) for f in known)


def _of_module(training: Training, node: ast.expr) -> bool:
    """Whether an expression is ``module.name``."""
    return isinstance(node, ast.Attribute) and training.value(node.value).only(ModuleRef)


def _end_of_imports(tree: ast.Module) -> int:
    """The last line of the run of imports that brings torch (else of the first run): ours is put among them."""
    runs = [list(run) for of_imports, run in groupby(tree.body, _is_import) if of_imports]
    with_torch = [run for run in runs if any("torch" in ast.unparse(statement) for statement in run)]
    return next(((run[-1].end_lineno or 0) for run in [*with_torch, *runs]), 0)


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Import, ast.ImportFrom))

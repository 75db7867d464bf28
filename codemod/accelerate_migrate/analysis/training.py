"""What trains what: backward calls, loops over loaders, and the objects that `prepare` must see."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from accelerate_migrate.analysis.atoms import (
    UNKNOWN,
    Batches,
    Bound,
    ClassRef,
    Library,
    ModuleRef,
    Object,
    Parameters,
    Role,
    Site,
    Tensor,
)
from accelerate_migrate.analysis.methods import root_sites
from accelerate_migrate.analysis.modules import Files
from accelerate_migrate.analysis.schedules import counts_steps, follows_a_metric
from accelerate_migrate.analysis.store import Store
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.analysis.values import BOTTOM, Value, join


@dataclass(frozen=True, eq=False)
class LoaderLoop:
    """A ``for`` over one or more loaders; ``trains`` where a backward runs inside it."""

    node: ast.For | ast.AsyncFor
    loaders: frozenset[Site]
    trains: bool


@dataclass(eq=False)
class Training:
    """The training of the active files of a program."""

    module: Files
    store: Store
    backwards: list[ast.Call] = field(default_factory=list)
    foreign_backwards: list[ast.Call] = field(default_factory=list)
    loops: list[LoaderLoop] = field(default_factory=list)
    steps: list[ast.Call] = field(default_factory=list)  # optimizer.step(...)
    outside_steps: list[ast.Call] = field(default_factory=list)  # in files that are only read
    scaler_calls: list[ast.Call] = field(default_factory=list)  # scaler(loss, optimizer): both of the above
    scheduler_steps: list[ast.Call] = field(default_factory=list)
    cache: dict[str, frozenset[str]] = field(default_factory=dict)
    phases: dict[ast.AST, list[int]] = field(default_factory=dict)  # where a scope's statements that train end

    def __post_init__(self) -> None:
        for node in self.module.walk():
            if isinstance(node, ast.Call) and self.value(node.func).sites(Role.SCALER):
                self.scaler_calls.append(node)
                self.backwards.append(node)
                self.steps.append(node)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                self._sort_call(node, node.func)
        for node in self.module.beside():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
                if self.value(node.func.value).sites(Role.OPTIMIZER):
                    self.outside_steps.append(node)
        for node in self.module.walk():
            if isinstance(node, (ast.For, ast.AsyncFor)):
                loaders = self.loaders_of(self.value(node.iter))
                if loaders:
                    self.loops.append(LoaderLoop(node, loaders, self.reaches(node.body, set(self.backwards))))

    def _sort_call(self, node: ast.Call, func: ast.Attribute) -> None:
        owner = self.value(func.value)
        if func.attr == "backward" and not is_accelerator(func.value):
            (self.backwards if self.is_backward(owner) else self.foreign_backwards).append(node)
        elif func.attr == "step":
            if self.receiver(node).sites(Role.OPTIMIZER):
                self.steps.append(node)
            elif owner.sites(Role.SCHEDULER):
                self.scheduler_steps.append(node)

    def value(self, node: ast.AST) -> Value:
        """What an expression may be."""
        return self.store.values.get(node, BOTTOM)

    def library_names(self, node: ast.AST) -> frozenset[str]:
        """The qualified library names that an expression may be."""
        return frozenset(atom.name for atom in self.value(node).of(Library))

    def is_backward(self, owner: Value) -> bool:
        """Whether ``owner.backward()`` starts the gradient of a loss: a tensor, or nothing that says otherwise."""
        if owner.of(Tensor):
            return True
        named = (Library, ModuleRef, ClassRef, Object, Parameters)
        return not any(isinstance(a, named) for a in owner) and not _of_library(owner)

    def loaders_of(self, iterated: Value) -> frozenset[Site]:
        """The loaders that iterating this value draws from."""
        found: set[Site] = set()
        for atom in iterated:
            if isinstance(atom, Batches):
                found |= atom.loaders
            elif isinstance(atom, Object) and atom.site.role is Role.LOADER:
                found.add(atom.site)
        return frozenset(found)

    # ---- reachability

    def reached(self, statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
        """Every node that may run when these statements run, functions of the program they call included."""
        seen: set[ast.AST] = set()
        stack: list[ast.AST] = list(statements)
        while stack:
            top = stack.pop()
            for node in self.module.walk(top):
                yield node
                if isinstance(node, ast.Call):
                    for callee in self.store.calls.get(node, ()):
                        if callee not in seen:
                            seen.add(callee)
                            body = callee.body if isinstance(callee, ast.Lambda) else getattr(callee, "body", [])
                            stack.extend(body if isinstance(body, list) else [body])

    def reaches(self, statements: list[ast.stmt], wanted: set[ast.Call]) -> bool:
        """Whether one of these calls may run when the statements run."""
        return any(node in wanted for node in self.reached(statements) if isinstance(node, ast.Call))

    def leading_to(self, node: ast.AST, scope: ast.AST) -> list[ast.stmt]:
        """The statements of a scope at which this node may run."""
        found: list[ast.stmt] = []
        seen: set[ast.AST] = set()
        queue = [node]
        while queue:
            current = queue.pop()
            function = self.module.function(current)
            if function is scope:
                found.append(self.module.statement(current))
            elif function not in seen:
                seen.add(function)
                queue.extend(self.store.callers.get(function, ()))
        return found

    def called_from(self, scope: ast.AST) -> set[ast.AST]:
        """A scope and every function of the program that it may call, directly or not."""
        found = {scope}
        for node in self.reached(list(getattr(scope, "body", []))):
            if isinstance(node, ast.Call):
                found |= self.store.calls.get(node, set())
        return found

    def callers_of(self, scope: ast.AST) -> list[ast.AST]:
        """A scope, and every scope that may call it, directly or not."""
        found = [scope]
        for current in found:
            for call in self.store.callers.get(current, ()):
                caller = self.module.function(call)
                if caller not in found:
                    found.append(caller)
        return found

    def outermost(self, scopes: Iterable[ast.AST]) -> ast.AST:
        """The scope from which the others are called. Raises ``Unclear`` where there is none."""
        wanted = set(scopes)
        for scope in sorted(wanted, key=lambda s: getattr(s, "lineno", 0)):
            if wanted <= self.called_from(scope):
                return scope
        for scope in wanted:  # several programs share it: each comes there
            if all(scope in self.called_from(other) for other in wanted):
                return scope
        first = min(wanted, key=lambda s: getattr(s, "lineno", 0))
        raise Unclear("model, optimizer and loader are made in functions that do not call each other", first)

    def made_at(self, site: Site) -> ast.AST | None:
        """The call that makes an object."""
        return next(iter(self.store.details[site].nodes), None)

    def forwards(self, node: ast.AST) -> frozenset[Site]:
        """The models that a call calls (``model(x)``), none for other nodes."""
        if not isinstance(node, ast.Call):
            return frozenset()
        return self.value(node.func).sites(Role.MODEL)

    def inside_loader_loop(self, node: ast.AST) -> bool:
        """Whether a node runs once a batch: in a loader's loop, or in a function called from one."""
        looping = [loop.node for loop in self.loops]
        seen: set[ast.AST] = set()
        queue: list[ast.AST] = [node]
        while queue:
            current = queue.pop()
            for around in self.module.ancestors(current):
                if around in looping and current is not getattr(around, "iter", None):
                    return True
                if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)) and around not in seen:
                    seen.add(around)
                    queue.extend(self.store.callers.get(around, ()))
                    break
        return False

    def in_training_loop(self, node: ast.AST) -> bool:
        """Whether a node stands in a loader's loop that trains."""
        looping = [loop.node for loop in self.loops if loop.trains]
        return any(around in looping for around in self.module.ancestors(node))

    def unscaled(self, loss: ast.expr) -> ast.expr:
        """The loss of ``scaler.scale(loss)``; any other as it is."""
        if isinstance(loss, ast.Call) and isinstance(loss.func, ast.Attribute) and loss.func.attr == "scale":
            if loss.args and self.value(loss.func.value).sites(Role.SCALER):
                return loss.args[0]
        return loss

    def receiver(self, call: ast.Call) -> Value:
        """What the method of a method call is called on.

        For ``scaler.step(optimizer)`` that is the optimizer, for ``scaler(loss, optimizer)`` both.
        """
        if call in self.scaler_calls:
            return join(self.value(argument) for argument in call.args[:2])
        assert isinstance(call.func, ast.Attribute)
        owner = self.value(call.func.value)
        if call.func.attr == "step" and call.args and owner.sites(Role.SCALER):
            return self.value(call.args[0])
        return owner

    def drawn_for(self, call: ast.Call) -> frozenset[Site]:
        """The loaders that the loss of a backward call was computed from."""
        return frozenset(site for tensor in self.receiver(call).of(Tensor) for site in tensor.loaders)

    # ---- objects

    @cached_property
    def optimizers(self) -> frozenset[Site]:
        """The optimizers that step in this module."""
        own = {module.path for module in self.module.active}
        outside = [self.value(c.func.value) for c in self.outside_steps if isinstance(c.func, ast.Attribute)]
        found = frozenset(site for one in outside for site in one.sites(Role.OPTIMIZER) if site.path in own)
        return found | frozenset(site for call in self.steps for site in self.receiver(call).sites(Role.OPTIMIZER))

    @cached_property
    def models(self) -> frozenset[Site]:
        """The outermost models whose parameters these optimizers own."""
        owned: set[Site] = set()
        for site in self.optimizers:
            owners = self.store.details[site].owners
            owned |= root_sites(owners) if owners is not None else set()
        for call in self.backwards:
            for tensor in self.receiver(call).of(Tensor):
                owned |= {s for s in tensor.models if self._holds_owned(s, owned)}
        owned = {site for site in owned if not self._is_of_other_script(site)}
        inner = {part for site in owned for part in self._parts(site)}
        return frozenset(owned - inner)

    def _is_of_other_script(self, site: Site) -> bool:
        """Whether only scripts that are not migrated with this one make an object: both call one factory, say."""
        made = self.made_at(site)
        if made is None:
            return False
        scopes = self.callers_of(self.module.function(made))
        modules = [self.module.module_of(scope) for scope in scopes if not self.store.callers.get(scope)]
        return bool(modules) and all(m is not None and m.editable and m not in self.module.active for m in modules)

    def _parts(self, site: Site) -> set[Site]:
        found: set[Site] = set()
        queue = [site]
        while queue:
            for held in self.store.details[queue.pop()].fields.values():
                for part in held.sites(Role.MODEL):
                    if part not in found:
                        found.add(part)
                        queue.append(part)
        return found - {site}

    def _holds_owned(self, site: Site, owned: set[Site]) -> bool:
        return bool(self._parts(site) & owned)

    @cached_property
    def loaders(self) -> frozenset[Site]:
        """The loaders that this module makes or iterates over."""
        found = {s for loop in self.loops for s in loop.loaders}
        own = {module.path for module in self.module.active}
        found |= {s for s in self.store.details if s.role is Role.LOADER and s.path in own}
        return frozenset(found)

    @cached_property
    def trained_loaders(self) -> frozenset[Site]:
        """The loaders whose loops train."""
        return frozenset(site for loop in self.loops if loop.trains for site in loop.loaders)

    @cached_property
    def loaders_trained_on(self) -> frozenset[Site]:
        """The loaders whose batches a loss is computed from, however they are drawn."""
        return self.trained_loaders.union(*map(self.drawn_for, self.backwards))

    @cached_property
    def per_batch_schedulers(self) -> frozenset[Site]:
        """The schedulers to prepare: stepped once a batch, nowhere once an epoch, counted in batches of a loader."""
        batch: set[Site] = set()
        epoch: set[Site] = set()
        for call in self.scheduler_steps:
            sites = self.receiver(call).sites(Role.SCHEDULER)
            if self.inside_loader_loop(call):
                batch |= sites
            else:
                epoch |= sites
        kept = {site for site in batch if follows_a_metric(site) or counts_steps(self, site)}
        return frozenset(batch - epoch - kept)


def is_accelerator(node: ast.expr) -> bool:
    """Whether an expression names the accelerator of a script that was migrated before: ``self.accelerator``."""
    return (isinstance(node, ast.Name) and node.id == "accelerator") or (
        isinstance(node, ast.Attribute) and node.attr == "accelerator"
    )


def _of_library(owner: Value) -> bool:
    """Whether a value is something of an imported library (``torch.autograd``), not a result of calling it."""
    return any(isinstance(a, Bound) and any(isinstance(b, (Library, Object)) for b in a.owner) for a in owner) and (
        UNKNOWN not in owner.atoms
    )

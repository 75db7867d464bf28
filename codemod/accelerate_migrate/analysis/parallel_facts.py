"""What a script's own parallel code says: its calls, what numbers and conditions mean, the names it gives."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from accelerate_migrate.analysis import parallel_library as table, processes
from accelerate_migrate.analysis.atoms import Process, Share
from accelerate_migrate.analysis.library import DATA_PARALLEL, DISTRIBUTED_DATA_PARALLEL
from accelerate_migrate.analysis.scopes import argument_for, parameters
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.values import Value, value

_PURE_CALLS = ("isinstance", "hasattr", "len", "int", "str", "bool")
_PURE_METHODS = ("startswith", "endswith", "lower", "upper", "strip", "keys")
_PURE_LIBRARIES = ("os.environ", "os.getenv", "torch.cuda.", "torch.accelerator.", "torch.backends.")
_TOLD = {"rank": Share.RANK, "world_size": Share.WORLD, "num_replicas": Share.WORLD}


@dataclass(eq=False)
class ParallelFacts:
    """The parallel calls of one module, and what its expressions say about the processes."""

    training: Training
    calls: dict[ast.Call, str] = field(default_factory=dict)  # with their qualified names
    flags: frozenset[str] = frozenset()  # the sources of tests for the way with a process group

    @property
    def active(self) -> bool:
        """Whether this script trains in parallel by itself."""
        return any(name in table.EVIDENCE for name in self.calls.values())

    def value(self, node: ast.AST) -> Value:
        """What an expression may be."""
        return self.training.value(node)

    # ---- numbers and conditions

    def share(self, node: ast.expr) -> Share | None:
        """What an expression says about the processes, flags of the script included."""
        known = self.named.get(self._key(node)) if isinstance(node, (ast.Name, ast.Attribute)) else None
        known = known or processes.share(self.value(node))
        if known is not None:
            return known
        if ast.unparse(node) in self.flags:
            return Share.SPREAD
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            parts = [self._as_value(part) for part in (node.left, node.comparators[0])]
            return processes.share(processes.compared(parts[0], node.ops[0], parts[1]))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.share(node.operand)
            return {Share.SPREAD: Share.ALONE, Share.ALONE: Share.SPREAD, Share.MAIN: Share.OTHERS}.get(inner)  # type: ignore[arg-type]
        if isinstance(node, ast.BoolOp):
            shares = [self.share(part) for part in node.values]
            if isinstance(node.op, ast.And) and Share.NEVER in shares:
                return Share.NEVER
            if None in shares:
                return None
            neutral = Share.SPREAD if isinstance(node.op, ast.And) else Share.ALONE
            left = set(shares) - {neutral} or set(shares)
            return left.pop() if len(left) == 1 else None
        return None

    def _key(self, node: ast.expr) -> tuple[ast.AST | None, str]:
        """A variable, by the function that has it, or an attribute."""
        return (self.training.module.function(node) if isinstance(node, ast.Name) else None, ast.unparse(node))

    def _as_value(self, node: ast.expr) -> Value:
        known = self.named.get(self._key(node)) if isinstance(node, (ast.Name, ast.Attribute)) else None
        return value(Process(known)) if known is not None else self.value(node)

    @cached_property
    def named(self) -> dict[tuple[ast.AST | None, str], Share]:
        """The variables that the process group, or a sampler, is told as its rank or its number of processes."""
        found: dict[tuple[ast.AST | None, str], Share] = {}
        for call, name in self.calls.items():
            if name not in table.STARTING | processes.SAMPLERS:
                continue
            for keyword in call.keywords:
                told = _TOLD.get(keyword.arg or "")
                if told is not None and isinstance(keyword.value, (ast.Name, ast.Attribute)):
                    found[self._key(keyword.value)] = told
        found = {key: told for key, told in found.items() if not self.is_reused(*key)}
        waiting = list(found)
        while waiting:
            function, name = waiting.pop()
            for handed in self._parameters_handed_on(function, name):
                if handed not in found and not self.is_reused(*handed):
                    found[handed] = found[function, name]
                    waiting.append(handed)
        return found

    def is_reused(self, function: ast.AST | None, name: str) -> bool:
        """Whether a function binds one of its parameters anew: it may stand for something else then."""
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        named = (n for n in self.training.module.walk(function) if isinstance(n, ast.Name) and n.id == name)
        own = {parameter.arg for parameter in parameters(function)}
        return name in own and any(not isinstance(n.ctx, ast.Load) for n in named)

    def _parameters_handed_on(self, function: ast.AST | None, name: str) -> Iterator[tuple[ast.AST | None, str]]:
        """The parameters that callers hand to a parameter of a function: ``def train(n_gpus): init(n_gpus)``."""
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return
        if name not in {parameter.arg for parameter in parameters(function)}:
            return
        for call in self.training.store.callers.get(function, set()):
            given = argument_for(call, function, name)
            around = self.training.module.function(call)
            if isinstance(given, ast.Name) and isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if given.id in {parameter.arg for parameter in parameters(around)}:
                    yield around, given.id

    def is_index(self, node: ast.expr) -> bool:
        """Whether an expression is a rank, which stands for the device of that number."""
        return self.active and self.share(node) in processes.RANKS

    def counts_processes(self, node: ast.expr) -> bool:
        """Whether an expression is the number of processes, or of devices that each have one."""
        return isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and self.share(node) in (
            Share.WORLD,
            Share.DEVICES,
        )

    # ---- names

    @cached_property
    def bare(self) -> frozenset[str]:
        """The variables that name a model beside its wrapper: ``bare = model`` and ``bare = model.module``.

        One statement may say both: ``bare = model.module if parallel else model``.
        """
        named: dict[str, set[str]] = {}
        for node in self.training.module.walk():
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                made = node.value
                ways = [made.body, made.orelse] if isinstance(made, ast.IfExp) else [made]
                named.setdefault(node.targets[0].id, set()).update(map(ast.unparse, ways))
        return frozenset(
            name
            for name, made in named.items()
            if any(text.endswith(".module") and text.removesuffix(".module") in made for text in made)
        )

    @cached_property
    def renamed(self) -> dict[str, str]:
        """The variables that only hold the wrapper of another, ``ddp = DDP(model)``, and that other."""
        stores = [n.id for n in self.training.module.walk() if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        found: dict[str, str] = {}
        for node in self.training.module.walk():
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and len(node.targets) == 1:
                name, wrapped = node.targets[0].id, self.wrapped(node)
                if isinstance(wrapped, ast.Name) and wrapped.id != name and stores.count(name) == 1:
                    if stores.count(wrapped.id) <= 2:
                        found[name] = wrapped.id
        return found

    @cached_property
    def taken_out(self) -> frozenset[str]:
        """The variables that only hold what a wrapper wraps, ``bare = model.module`` below ``model = DDP(model)``."""
        assigned = [n for n in self.training.module.walk() if isinstance(n, ast.Assign) and len(n.targets) == 1]
        wrappers = {ast.unparse(n.targets[0]) for n in assigned if self.wrapped(n) is not None}
        made: dict[str, set[bool]] = {}
        for node in assigned:
            if isinstance(node.targets[0], ast.Name):
                value = node.value
                taken = isinstance(value, ast.Attribute) and value.attr == "module"
                taken = taken and ast.unparse(value.value) in wrappers  # type: ignore[attr-defined]
                made.setdefault(node.targets[0].id, set()).add(taken)
        return frozenset(name for name, ways in made.items() if ways == {True})

    @property
    def aliases(self) -> frozenset[str]:
        """The names of models that are not to be prepared under this name."""
        return self.bare | self.renamed.keys() | self.taken_out if self.active else frozenset()

    def rewraps(self, statement: ast.stmt) -> bool:
        """``model = DDP(model.cuda(), …)``: a statement that only wraps (and moves) what it rebinds."""
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
            return False
        made = self.wrapped(statement)
        if made is None:
            return False
        target, inner = ast.unparse(statement.targets[0]), ast.unparse(made)
        return target == inner or self._holds_already(statement, target, inner)

    def _holds_already(self, statement: ast.Assign, target: str, inner: str) -> bool:
        """Whether a statement above in the same block gave a target what is wrapped: ``self.net = net.to(rank)``."""
        block = self.training.module.block(statement)
        for other in block[: block.index(statement)]:
            if isinstance(other, ast.Assign) and ast.unparse(other.targets[0]) == target:
                made = other.value
                while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute):
                    if made.func.attr not in ("cuda", "to"):
                        break
                    made = made.func.value
                if ast.unparse(made) == inner:
                    return True
        return False

    def wrapped(self, statement: ast.Assign) -> ast.expr | None:
        """What ``… = DDP(model.cuda(), …)`` wraps, ``None`` where it does not or does more."""
        made, wrapped = statement.value, False
        while isinstance(made, ast.Call):
            name = self.calls.get(made) or next(iter(self.training.library_names(made.func) & DATA_PARALLEL), None)
            if name in DISTRIBUTED_DATA_PARALLEL | DATA_PARALLEL | table.WRAPPING_OPTIMIZERS:
                made, wrapped = (made.args[0] if made.args else made.keywords[0].value), True
            elif isinstance(made.func, ast.Attribute) and made.func.attr in ("cuda", "to"):
                made = made.func.value
            else:
                break
        return made if wrapped else None

    def stored(self, target: ast.expr) -> Value | None:
        """Everything that a variable or attribute is ever bound to."""
        if isinstance(target, ast.Name):
            function = self.training.module.function(target)
            return self.training.store.stored(function, target.id)
        return self.value(target) if isinstance(target, ast.Attribute) else None

    def is_pure(self, node: ast.expr) -> bool:
        """Whether evaluating an expression does nothing else."""
        for part in ast.walk(node):
            if isinstance(part, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
                return False
            if isinstance(part, ast.Call) and not self._is_pure_call(part):
                return False
        return True

    def _is_pure_call(self, call: ast.Call) -> bool:
        if processes.share(self.value(call)) is not None or ast.unparse(call.func) in _PURE_CALLS:
            return True
        if isinstance(call.func, ast.Attribute) and call.func.attr in _PURE_METHODS:
            return self.is_pure(call.func.value)
        names = self.training.library_names(call.func)
        return bool(names) and all(n in table.ASKING or n.startswith(_PURE_LIBRARIES) for n in names)

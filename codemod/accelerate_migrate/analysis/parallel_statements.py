"""What of a script's own parallel code goes: which statements, and which way of an ``if`` stays.

A script of this kind mostly knows two ways, one with a process group and one without, chosen by a flag. On one process
the migrated script must do what the way without a group did; what the other way added is what ``prepare`` and the
launcher do. So statements that only set up processes go, an ``if`` on the flag goes with them or leaves the branch
that has something left, and numbers of processes are asked of the accelerator.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from accelerate_migrate.analysis import parallel_library as table, processes
from accelerate_migrate.analysis.atoms import Role, Share, Site
from accelerate_migrate.analysis.devices import is_pure_move
from accelerate_migrate.analysis.gradient_averaging import averages_gradients, makes_equal, wraps_by_hand
from accelerate_migrate.analysis.library import SPAWNERS
from accelerate_migrate.analysis.modules import is_main_block
from accelerate_migrate.analysis.parallel_facts import ParallelFacts
from accelerate_migrate.analysis.settings import overridden
from accelerate_migrate.analysis.units import is_never_named
from accelerate_migrate.analysis.values import is_device

_PRINTS = ("builtins.print", "__builtin__.print", "__builtins__.print")


@dataclass(eq=False)
class Parallel(ParallelFacts):
    """The parallel code of one module, and what of it goes. ``active`` where a script runs any by itself."""

    gone: set[ast.stmt] = field(default_factory=set)  # statements that go whole, with all in them
    kept: dict[ast.If, str] = field(default_factory=dict)  # ifs of which only one branch stays
    lifted: dict[ast.stmt, list[ast.Assign]] = field(default_factory=dict)  # what stays of a statement that goes
    overrides: set[str] = field(default_factory=set)  # functions that were to replace print

    def is_gone(self, node: ast.AST) -> bool:
        """Whether a node stands in a statement that goes, or in the branch that does."""
        inside = node
        for around in (node, *self.training.module.ancestors(node)):
            if around in self.gone:
                return True
            branch = self.kept.get(around) if isinstance(around, ast.If) else None
            if branch is not None and inside is not around:
                if not any(inside is statement for statement in getattr(around, branch)):
                    return True
            inside = around
        return False

    # ---- statements

    def goes(self, statement: ast.stmt) -> bool:
        """Whether nothing of a statement is left."""
        if statement in self.gone:
            return True
        if isinstance(statement, ast.Expr):
            return self._call_goes(statement.value)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            return self._assignment_goes(statement, statement.targets[0])
        if isinstance(statement, ast.If):
            return self._if_goes(statement)
        if isinstance(statement, ast.For):
            averages = averages_gradients(self, statement) and self._at_each_step(statement)
            return averages or makes_equal(self, statement)
        if isinstance(statement, ast.FunctionDef):
            return statement.name in self.overrides and not isinstance(
                self.training.module.parents[statement], ast.Module
            )
        return False

    def _call_goes(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return False
        if self.calls.get(node) in table.SET_UP:
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr == "set_epoch":
            return self._is_sampler_of_script(node.func.value)
        called = self.training.store.calls.get(node, set())
        if any(averages_gradients(self, n) for f in called for n in ast.walk(f) if isinstance(n, ast.For)):
            if not self._at_each_step(node):
                return False
        return bool(called) and all(self.only_sets_up(f) or wraps_by_hand(self, f) for f in called)

    def _at_each_step(self, node: ast.AST) -> bool:
        """Whether no ``if`` lets the optimizer step without what this node does."""
        return all(
            self.share(around.test) is Share.SPREAD
            or any(isinstance(n, ast.Attribute) and n.attr == "step" for s in around.body for n in ast.walk(s))
            for around in self.training.module.ancestors(node)
            if isinstance(around, ast.If) and not is_main_block(around)
        )

    def _is_sampler_of_script(self, node: ast.expr) -> bool:
        """Whether an expression may be a DistributedSampler made in this module, or is that of a loader made here."""
        if isinstance(node, ast.Attribute) and node.attr == "sampler":
            loaders = self.value(node.value).sites(Role.LOADER)
            made = [call for site in loaders for call in self.training.store.details[site].nodes]
            samplers = [self.value(k.value) for call in made for k in call.keywords if k.arg == "sampler"]
        else:
            samplers = [self.value(node)]
        sites = {site for one in samplers for site in one.sites(Role.SAMPLER)}
        return any(s.made_by in processes.SAMPLERS and self._is_ours(s) for s in sites)

    def _is_ours(self, site: Site) -> bool:
        """Whether an object is made in a file that may change."""
        return any(module.path == site.path for module in self.training.module.active)

    def only_sets_up(self, function: ast.AST) -> bool:
        """Whether a function does nothing but set up or end the process group."""
        body = getattr(function, "body", None)
        if not isinstance(function, ast.FunctionDef) or not isinstance(body, list):
            return False
        statements = [s for s in body if not _is_docstring(s)]
        if not self.training.module.is_active(function):
            return any(self._sets_up_elsewhere(node) for node in ast.walk(function))
        rest = [s for s in statements if not self.goes(s)]
        return len(rest) < len(statements) and all(is_idle(s) for s in self._without_unread(function, rest))

    def _without_unread(self, function: ast.FunctionDef, rest: list[ast.stmt]) -> list[ast.stmt]:
        """The rest of a function's statements without local values that only those before read: ``backend = …``."""
        named = {name for s in ast.walk(function) if isinstance(s, (ast.Global, ast.Nonlocal)) for name in s.names}
        for statement in rest:
            made = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
            target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
            if made is None or not isinstance(target, ast.Name) or target.id in named or not self._only_asks(made):
                continue
            others = [s for s in rest if s is not statement]
            if not any(isinstance(n, ast.Name) and n.id == target.id for s in others for n in ast.walk(s)):
                return self._without_unread(function, others)
        return rest

    def _only_asks(self, made: ast.expr) -> bool:
        """Whether a value is what a library says of devices and backends, or pure."""
        known = table.DESCRIBING | {"torch.device"}
        return all(
            self._is_pure_call(n) or bool(self.training.library_names(n.func) & known)
            for n in ast.walk(made)
            if isinstance(n, ast.Call)
        )

    def _sets_up_elsewhere(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        return not self.training.library_names(node.func).isdisjoint(table.STARTING | table.ENDING)

    def _assignment_goes(self, statement: ast.Assign, target: ast.expr) -> bool:
        made = statement.value
        if isinstance(target, ast.Subscript) and processes.is_environment(self.value(target.value)):
            key = self.value(target.slice).const()
            return key in table.LAUNCH_VARIABLES
        if ast.unparse(target) in _PRINTS:
            return True
        if not isinstance(target, (ast.Name, ast.Attribute)):
            return False
        if self._wraps_by_hand(target, made):
            return True
        if self._averages_late(target, made) or self._sets_own_device(target, made):
            return True
        if isinstance(made, ast.Call) and self.calls.get(made) in processes.SAMPLERS:
            return True
        stored = self.stored(target)
        if stored is not None and processes.is_sampler(stored) and isinstance(made, (ast.Constant, ast.IfExp)):
            return True
        return (
            self.rewraps(statement)
            or self.renames(statement)
            or self._looks_through(statement)
            or self.names_processes(statement)
        )

    def _wraps_by_hand(self, target: ast.Name | ast.Attribute, made: ast.expr) -> bool:
        """``model = average_gradients(model)``: a function of the script, which hands the model back."""
        if not isinstance(made, ast.Call) or not made.args or ast.unparse(made.args[0]) != ast.unparse(target):
            return False
        called = self.training.store.calls.get(made, set())
        return bool(called) and all(wraps_by_hand(self, function) for function in called)

    def is_by_hand(self, call: ast.Call) -> bool:
        """Whether a call stands in data parallelism by hand that ``prepare`` takes over."""
        around = list(self.training.module.ancestors(call))
        return any(
            (isinstance(a, ast.For) and makes_equal(self, a))
            or (isinstance(a, ast.FunctionDef) and wraps_by_hand(self, a))
            for a in around
        )

    def is_unused(self, node: ast.AST) -> bool:
        """Whether a node stands in a class or a function that nothing in the program names."""
        around = [a for a in self.training.module.ancestors(node) if isinstance(a, (ast.ClassDef, ast.FunctionDef))]
        return bool(around) and is_never_named(self.training, around[-1])

    def _averages_late(self, target: ast.Name | ast.Attribute, made: ast.expr) -> bool:
        """``model.require_backward_grad_sync = step == last``: averaging more often gives the same gradients."""
        if not (isinstance(target, ast.Attribute) and target.attr == "require_backward_grad_sync"):
            return False
        known = self.value(target.value).sites(Role.MODEL)
        return bool(known) and self.is_pure(made) and not isinstance(made, ast.Constant)

    def _sets_own_device(self, target: ast.Name | ast.Attribute, made: ast.expr) -> bool:
        """``device = f"cuda:{local_rank}"`` over a setting whose readers ask the accelerator for its device."""
        if not isinstance(target, ast.Name) or target.id not in overridden(self.training.module.root(target)):
            return False
        ranks = any(isinstance(n, ast.expr) and self.share(n) in processes.RANKS for n in ast.walk(made))
        return ranks and is_device(self.value(made)) and self.is_pure(made)

    def _looks_through(self, statement: ast.Assign) -> bool:
        """``bare = model.module`` where ``bare = model`` stands too: without a wrapper that is what it is."""
        target, made = statement.targets[0], statement.value
        return (
            isinstance(target, ast.Name)
            and target.id in self.bare
            and isinstance(made, ast.Attribute)
            and made.attr == "module"
        )

    def renames(self, statement: ast.Assign) -> bool:
        """Whether a statement only wraps a model under another name, for which its own stands from then on."""
        return isinstance(statement.targets[0], ast.Name) and statement.targets[0].id in self.renamed

    def names_processes(self, statement: ast.stmt) -> bool:
        """``rank = dist.get_rank()``: a variable for what the accelerator is asked instead."""
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
            return False
        target, made = statement.targets[0], statement.value
        if ast.unparse(target) in self.flags and self.is_pure(statement.value):
            return True
        if self.is_reused(self.training.module.function(target), ast.unparse(target)) and self.share(made) is None:
            return False
        known = processes.share(self.stored(target)) or self.named.get(self._key(target))
        if isinstance(statement.value, ast.IfExp) and self.share(statement.value.test) is None:
            return False
        if known is None or known is Share.DEVICES or not self.is_pure(statement.value):
            return False
        return not (isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self")

    def _only_tells_to_shuffle(self, statement: ast.Assign) -> bool:
        """``shuffle = False`` beside a sampler, where nothing but the ``shuffle=`` of a loader reads it."""
        target = statement.targets[0]
        if not isinstance(target, ast.Name) or not isinstance(statement.value, ast.Constant):
            return False
        module = self.training.module
        named = [n for n in module.walk(module.function(target)) if isinstance(n, ast.Name) and n.id == target.id]
        loads = [n for n in named if isinstance(n.ctx, ast.Load)]
        around = [module.parents[n] for n in loads]
        return bool(loads) and all(
            isinstance(a, ast.keyword) and a.arg == "shuffle" and self._has_sampler(module.parents[a]) for a in around
        )

    def _has_sampler(self, loader: ast.AST) -> bool:
        """Whether a call makes a loader with a sampler."""
        made = bool(self.value(loader).sites(Role.LOADER))
        return made and isinstance(loader, ast.Call) and any(k.arg == "sampler" for k in loader.keywords)

    def told_alone(self, name: ast.Name) -> ast.Constant | None:
        """What a variable that says whether to shuffle is on the way without a process group."""
        module = self.training.module
        for node in module.walk(module.function(name)):
            if not isinstance(node, ast.If) or not self.is_gone(node):
                continue
            share = self.share(node.test)
            alone = node.orelse if share is Share.SPREAD else node.body if share is Share.ALONE else []
            for statement in alone:
                if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name.id:
                    return statement.value if isinstance(statement.value, ast.Constant) else None
        return None

    def _if_goes(self, node: ast.If) -> bool:
        if self.share(node.test) is Share.NEVER and not node.orelse:
            return True
        if not self.is_pure(node.test) or not self._has_evidence(node):
            return False
        spread = self._guards(node)
        return all(self.goes_inside(s, spread) for s in node.body) and all(
            self.goes_inside(s, spread) for s in node.orelse
        )

    def goes_inside(self, statement: ast.stmt, spread: bool) -> bool:
        """Whether a statement of an ``if`` that chooses a way to train in parallel goes."""
        if self.goes(statement) or isinstance(statement, ast.Pass) or self.is_lifted(statement):
            return True
        if spread and isinstance(statement, ast.Assign) and self._only_tells_to_shuffle(statement):
            return True
        if isinstance(statement, ast.If) and self.is_pure(statement.test):
            return all(self.goes_inside(s, spread) for s in (*statement.body, *statement.orelse))
        if is_pure_move(statement) and self._moves_models(statement):
            return True
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            return spread and (
                self.calls.get(statement.value) in table.WAITING or self._reduces_a_meter(statement.value)
            )
        return False

    def only_spawns(self, way: list[ast.stmt], other: list[ast.stmt]) -> bool:
        """Whether one branch starts processes of a function that the other one calls itself."""
        spawned = set()
        for statement in way:
            call = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(call, ast.Call) and self.calls.get(call, "") in SPAWNERS:
                spawned |= {ast.unparse(call.args[0])} if call.args else set()
            elif not (self.goes(statement) or is_idle(statement) or _is_number(statement)):
                return False
        called = {ast.unparse(n.func) for s in other for n in ast.walk(s) if isinstance(n, ast.Call)}
        return bool(spawned) and spawned <= called

    def _guards(self, node: ast.If) -> bool:
        """Whether an ``if`` or one around it asks for several processes."""
        around = [a for a in (node, *self.training.module.ancestors(node)) if isinstance(a, ast.If)]
        return any(self.share(a.test) in (Share.SPREAD, Share.ALONE) for a in around)

    def _reduces_a_meter(self, call: ast.Call) -> bool:
        """``meter.all_reduce()``: a method of the script that only adds its numbers up over the processes."""
        called = self.training.store.calls.get(call, set())
        names = [self.calls[n] for f in called for n in ast.walk(f) if isinstance(n, ast.Call) and n in self.calls]
        return bool(names) and all(name in table.REDUCING | table.WAITING for name in names)

    def _moves_models(self, statement: ast.stmt) -> bool:
        calls = [n.func for n in ast.walk(statement) if isinstance(n, ast.Call)]
        moved = [func.value for func in calls if isinstance(func, ast.Attribute)]
        return bool(moved) and all(self.value(v).sites(Role.MODEL) for v in moved)

    def _has_evidence(self, node: ast.If) -> bool:
        for part in self.training.module.walk(node):
            if isinstance(part, ast.stmt) and part is not node and not isinstance(part, ast.If):
                if self.goes(part):
                    return True
        return self.share(node.test) in (Share.SPREAD, Share.ALONE, Share.OTHERS)

    def is_lifted(self, statement: ast.stmt) -> bool:
        """``args.batch_size = int(args.batch_size / world_size)``: changes nothing on one process, so needs no test."""
        if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
            return False
        made = statement.value
        if not self.is_pure(made) or self.names_processes(statement):
            return False
        parts = [n for n in ast.walk(made) if isinstance(n, ast.expr)]
        return any(map(self.counts_processes, parts)) and ast.unparse(statement.targets[0]) in map(ast.unparse, parts)


def _is_number(statement: ast.stmt) -> bool:
    """An assignment of something without a call, such as ``args.nprocs = args.nodes * 8``."""
    return isinstance(statement, ast.Assign) and not any(isinstance(n, ast.Call) for n in ast.walk(statement.value))


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def is_idle(statement: ast.stmt) -> bool:
    """A print, a ``pass`` or a ``return`` of nothing."""
    if isinstance(statement, ast.Return):
        return statement.value is None
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func) == "print"
    return isinstance(statement, (ast.Pass, ast.Global, ast.Import, ast.ImportFrom, ast.Assert))

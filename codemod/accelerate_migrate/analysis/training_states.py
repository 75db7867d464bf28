"""Checkpoints that training resumes from: the dicts that are saved whole, and the code that reads them back.

``accelerator.save_state`` keeps every prepared object, so a dict can become a state only where it holds the state of
each of them, and where the code that resumes puts all of these back, from the same keys, and unconditionally. What else
is in the dict (the epoch, the best result) stays in a small file. One place that does not fit keeps them all as files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from accelerate_migrate.analysis.atoms import Loaded, Object, Process, Role, Share, Site, StateDict
from accelerate_migrate.analysis.modules import LOOPS, Files
from accelerate_migrate.analysis.plan import Plan
from accelerate_migrate.analysis.scopes import argument_for, binding_scope, parameters
from accelerate_migrate.analysis.state_files import Kept, ResumedState, SavedState, check_files
from accelerate_migrate.analysis.state_places import place
from accelerate_migrate.analysis.values import flatten

Entries = dict[str, frozenset[Site]]


@dataclass(eq=False)
class TrainingStates:
    """The checkpoints of a program that can become states; ``kept`` says why there are none."""

    plan: Plan
    saves: list[SavedState] = field(default_factory=list)
    resumes: list[ResumedState] = field(default_factory=list)
    tests_of_files: list[ast.Call] = field(default_factory=list)  # os.path.isfile(path)
    kept: str = ""

    @cached_property
    def wanted(self) -> frozenset[Site]:
        """What a state holds besides loaders."""
        return frozenset(site for site in self.plan.prepared if site.role is not Role.LOADER)

    def restored(self, node: ast.expr) -> frozenset[Site] | None:
        """The prepared objects whose state this expression is (none for a loss scale); ``None`` for anything else."""
        if isinstance(node, ast.IfExp):
            one, other = self.restored(node.body), self.restored(node.orelse)
            return one if one == other else None
        called = node.func if isinstance(node, ast.Call) else None
        if not isinstance(called, ast.Attribute) or called.attr != "state_dict" or node.args or node.keywords:  # type: ignore[attr-defined]
            return None
        if self.plan.precision.is_scaler(called.value):
            return frozenset()
        value = self.plan.value(node)
        sites = frozenset(site for atom in value.of(StateDict) for site in atom.sites)
        return sites if sites and sites <= self.wanted and value.only(StateDict) else None

    def entries(self, save: SavedState) -> Iterator[tuple[str, ast.expr]]:
        """The keys of a saved dict with their values."""
        for display in save.displays:
            for key, held in zip(display.keys, display.values, strict=True):
                assert isinstance(key, ast.Constant)
                yield str(key.value), held
        for statement in save.later:
            assert isinstance(statement.targets[0], ast.Subscript)
            assert isinstance(statement.targets[0].slice, ast.Constant)
            yield str(statement.targets[0].slice.value), statement.value


def find_states(plan: Plan) -> TrainingStates:
    """The checkpoints that can become states."""
    states = TrainingStates(plan)
    found = [call for call in _calls(plan, plan.module.walk(), "torch.save") if _is_training_state(plan, call)]
    if not found:
        return states
    try:
        _check_whole(plan)
        states.saves = [_saved(states, call) for call in found]
        dropped, kept_keys = _split(states)
        _find_resumes(states, dropped, kept_keys)
        if not states.resumes:
            raise Kept("nothing in the program resumes from it")
        for resume in states.resumes:
            place(plan, states.wanted, resume)
        states.tests_of_files = check_files(plan, states.saves, states.resumes)
    except Kept as why:
        states.kept = str(why)
        states.saves = [SavedState(call, plan.module.statement(call)) for call in found]  # type: ignore[arg-type]
        states.resumes = []
    return states


def _calls(plan: Plan, nodes: Iterable[ast.AST], name: str) -> list[ast.Call]:
    return [n for n in nodes if isinstance(n, ast.Call) and plan.training.library_names(n.func) == {name}]


def _is_training_state(plan: Plan, call: ast.Call) -> bool:
    """Whether what is saved has the state of a prepared optimizer in it."""
    held = [atom for argument in call.args[:1] for atom in flatten(plan.value(argument)) if isinstance(atom, StateDict)]
    return any(site.role is Role.OPTIMIZER and site in plan.prepared for atom in held for site in atom.sites)


def _check_whole(plan: Plan) -> None:
    """What a state holds must be there once, and in the same number, whenever one is saved or loaded."""
    for group in plan.groups:
        scope: ast.AST = group.scope
        seen: set[ast.AST] = set()
        nodes: list[ast.AST] = [group.made or group.anchor]
        while nodes:
            node = nodes.pop()
            scope = plan.module.function(node)
            for around in plan.module.ancestors(node):
                if isinstance(around, LOOPS):
                    raise Kept("objects are prepared again and again in a loop", around)
                if around is scope:
                    break
            if scope not in seen:
                seen.add(scope)
                nodes += plan.store.callers.get(scope, ())
    for node in plan.module.walk():
        if isinstance(node, ast.Call) and plan.training.library_names(node.func) == {"builtins.iter"} and node.args:
            if plan.training.loaders_of(plan.value(node.args[0])) & plan.prepared:
                raise Kept("a loader is drawn from by hand, which would start in the middle of an epoch", node)


# ---- what is saved


def _saved(states: TrainingStates, call: ast.Call) -> SavedState:
    plan = states.plan
    statement = plan.module.parents[call]
    if not isinstance(statement, ast.Expr) or len(call.args) != 2 or call.keywords:
        raise Kept("a `torch.save` has more arguments than a state and a path", call)
    if any(isinstance(around, ast.With) for around in plan.module.ancestors(call)):
        raise Kept("it is saved inside a `with`", call)
    if not plan.placement.available(call):
        raise Kept("the accelerator cannot be passed to where it is saved", call)
    if plan.training.inside_loader_loop(call):
        raise Kept("it is saved in the middle of an epoch, and the script itself knows where it was", call)
    if any(isinstance(atom, Process) for node in ast.walk(call.args[1]) for atom in plan.value(node)):
        raise Kept("its path tells processes apart", call)
    for around in plan.module.ancestors(call):
        if isinstance(around, ast.If) and around.orelse and plan.parallel.share(around.test) is Share.MAIN:
            raise Kept("only the first process comes to where it is saved", around)
    save = SavedState(call, statement)
    _fill(states, save, call.args[0])
    for site in plan.prepared:
        if not plan.is_prepared_at(site, call.args[1]):
            raise Kept("it is saved before everything is prepared", call)
    return save


def _fill(states: TrainingStates, save: SavedState, argument: ast.expr) -> None:
    """Find every display that becomes what is saved. Raises ``Kept`` where one is not seen whole."""
    plan, module = states.plan, states.plan.module
    if isinstance(argument, ast.Dict):
        if not all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in argument.keys):
            raise Kept("the saved dict is not seen whole", argument)
        if any(isinstance(a, Object) and a.site in states.wanted for v in argument.values for a in plan.value(v)):
            raise Kept("the saved dict holds a whole model", argument)
        if argument not in save.displays:
            save.displays.append(argument)
        return
    if not isinstance(argument, ast.Name):
        raise Kept("the saved dict is not seen whole", argument)
    function = module.function(argument)
    scope = binding_scope(module, plan.store, argument)
    uses = [n for n in module.walk(scope) if isinstance(n, ast.Name) and n.id == argument.id]
    stores = [n for n in uses if isinstance(n.ctx, ast.Store)]
    if scope is not function:
        raise Kept("the saved dict is not seen whole", argument)
    for use in uses:
        saved = _is_saved(plan, module.parents[use], use)
        if not (saved or use is argument or use in stores or _adds_entry(module, save, use)):
            raise Kept("the dict is used for more than saving it", use)
    if not stores and isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        named = any(parameter.arg == argument.id for parameter in parameters(function))
        calls = plan.store.callers.get(function, set())
        given = [argument_for(call, function, argument.id) for call in calls]
        if not named or not given or not all(module.is_active(call) for call in calls):
            raise Kept("the saved dict is not seen whole", argument)
        for one in sorted((g for g in given if g is not None), key=lambda g: g.lineno):
            _fill(states, save, one)
        if None in given:
            raise Kept("the saved dict is not seen whole", argument)
        return
    made = module.parents[stores[0]] if len(stores) == 1 else None
    if not isinstance(made, ast.Assign) or len(made.targets) != 1 or not isinstance(made.value, ast.Dict):
        raise Kept("the saved dict is not seen whole", argument)
    _fill(states, save, made.value)


def _is_saved(plan: Plan, call: ast.AST, use: ast.Name) -> bool:
    """``torch.save(state, best_path)``, beside the one that is looked at"""
    return isinstance(call, ast.Call) and call.args[:1] == [use] and bool(_calls(plan, [call], "torch.save"))


def _adds_entry(module: Files, save: SavedState, use: ast.Name) -> bool:
    """``state["scaler"] = scaler.state_dict()``"""
    entry = module.parents[use]
    statement = module.parents[entry]
    if (
        isinstance(entry, ast.Subscript)
        and isinstance(entry.ctx, ast.Store)
        and isinstance(entry.slice, ast.Constant)
        and isinstance(entry.slice.value, str)
        and isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
    ):
        if statement not in save.later:
            save.later.append(statement)
        return True
    return False


def _split(states: TrainingStates) -> tuple[Entries, frozenset[str]]:
    """The keys under which prepared objects are saved, with these, and all other keys."""
    dropped: Entries = {}
    kept: set[str] = set()
    for save in states.saves:
        for key, held in states.entries(save):
            sites = states.restored(held)
            if sites is None:
                kept.add(key)
            elif dropped.setdefault(key, sites) != sites:
                raise Kept(f"`{key}` is the state of different objects", held)
        for display in save.displays:
            values = [*display.values, *(statement.value for statement in save.later)]
            found = frozenset(site for one in values for site in states.restored(one) or ())
            missing = sorted({site.role.value for site in states.wanted - found})
            if missing:
                raise Kept(f"not every prepared {' and '.join(missing)} is in the saved dict", display)
    if kept & dropped.keys():
        raise Kept(f"`{min(kept & dropped.keys())}` is not always the state of a prepared object")
    return dropped, frozenset(kept)


# ---- what is read back


def _find_resumes(states: TrainingStates, dropped: Entries, kept_keys: frozenset[str]) -> None:
    plan = states.plan
    loads = {
        Loaded(module.path, call.lineno, call.col_offset): call
        for call in _calls(plan, plan.module.everywhere(), "torch.load")
        if (module := plan.module.module_of(call)) is not None
    }
    asked: dict[Loaded, set[str]] = {}
    for node in plan.module.everywhere():
        base, key = _key(node)
        for loaded in plan.value(base).of(Loaded) if base is not None else ():
            asked.setdefault(loaded, set()).add(key)
    taken: set[ast.Call] = set()
    for loaded, keys in asked.items():
        call = loads.get(loaded)
        if call is None or call in taken or not keys & dropped.keys():
            continue
        resume = _resumed(states, call, dropped, kept_keys)
        taken.update(resume.calls)
        states.resumes.append(resume)
    states.resumes.sort(key=lambda resume: resume.calls[0].lineno)


def _key(node: ast.AST) -> tuple[ast.expr | None, str]:
    """The dict that is asked for a key written down, and the key."""
    key: ast.AST | None = None
    base: ast.expr | None = None
    if isinstance(node, ast.Subscript):
        base, key = node.value, node.slice
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        base, key = node.comparators[0], node.left
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
        base, key = node.func.value, next(iter(node.args), None)
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return base, key.value
    return None, ""


def _resumed(states: TrainingStates, call: ast.Call, dropped: Entries, kept_keys: frozenset[str]) -> ResumedState:
    """What a ``torch.load`` is read for. Raises ``Kept`` unless it is nothing but resuming."""
    plan, module = states.plan, states.plan.module
    elsewhere = Kept("the file is also read in another way", call)
    statement = module.parents[call]
    if not module.is_active(call) or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        raise elsewhere
    target = statement.targets[0]
    if not isinstance(target, ast.Name) or not plan.placement.available(call):
        raise elsewhere
    scope = binding_scope(module, plan.store, target)
    if scope is not module.function(call):
        raise elsewhere
    uses = [n for n in module.walk(scope) if isinstance(n, ast.Name) and n.id == target.id]
    reads = [module.parents[n] for n in uses if isinstance(n.ctx, ast.Store)]
    calls = [read.value for read in reads if isinstance(read, ast.Assign) and isinstance(read.value, ast.Call)]
    paths = {ast.unparse(one.args[0]) for one in calls if one.args}
    if len(calls) != len(reads) or len(paths) != 1 or not {*calls} <= {*_calls(plan, calls, "torch.load")}:
        raise elsewhere
    resume = ResumedState(calls, [r for r in reads if isinstance(r, ast.Assign)], target.id, [], extras=False)
    restored: set[str] = set()
    for use in uses:
        if isinstance(use.ctx, ast.Store):
            continue
        asking = module.parents[use]
        if isinstance(asking, ast.Attribute):
            asking = module.parents[asking]
        base, key = _key(asking)
        if base is not use:
            if isinstance(asking, ast.Delete):
                resume.extras = True
                continue
            raise Kept("the file is also read in another way", use)
        if key not in dropped:
            if key not in kept_keys and isinstance(asking, ast.Subscript):
                raise Kept(f"`{key}` is read, which is not saved", use)
            resume.extras = True
            continue
        loading = _loading(states, asking, dropped[key])
        if loading is not None:
            resume.loads.append(loading)
            restored.add(key)
        elif dropped[key] or not isinstance(asking, ast.Compare):
            raise Kept(f"`{key}` is read for something else than `load_state_dict`", use)
    missing = {key for key, sites in dropped.items() if sites} - restored
    if missing:
        raise Kept(f"`{min(missing)}` is saved, but not restored", call)
    blocks = [module.block(load) for load in resume.loads if not _is_of_scaler(states, load)]
    if any(block is not blocks[0] for block in blocks):
        raise Kept("not everything is restored under the same condition", resume.loads[0])
    resume.loads.sort(key=lambda load: load.lineno)
    return resume


def _loading(states: TrainingStates, asking: ast.AST, sites: frozenset[Site]) -> ast.Expr | None:
    """The statement ``x.load_state_dict(checkpoint[key])``, where ``x`` is what was saved under this key."""
    call = states.plan.module.parents[asking]
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.args != [asking]:
        return None
    statement = states.plan.module.parents[call]
    plain = all(k.arg == "strict" and getattr(k.value, "value", False) is True for k in call.keywords)
    if call.func.attr != "load_state_dict" or not plain or not isinstance(statement, ast.Expr):
        return None
    if not sites:
        return statement if states.plan.precision.is_scaler(call.func.value) else None
    value = states.plan.value(call.func.value)
    return statement if value.sites() == sites else None


def _is_of_scaler(states: TrainingStates, load: ast.Expr) -> bool:
    assert isinstance(load.value, ast.Call)
    assert isinstance(load.value.func, ast.Attribute)
    return states.plan.precision.is_scaler(load.value.func.value)

"""Where the prepared objects live: the variable, attribute or item that holds each."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from accelerate_migrate.analysis.atoms import Const, Library, Mapping_, Object, Role, Sequence_, Site
from accelerate_migrate.analysis.scopes import assigned_targets, parameters
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.unclear import Unclear
from accelerate_migrate.analysis.values import Value, value

_ORDER = {Role.MODEL: 0, Role.OPTIMIZER: 1, Role.LOADER: 2, Role.SCHEDULER: 3}


@dataclass(frozen=True, eq=False)
class Home:
    """A place that holds an object to prepare; ``name`` is its source: ``net``, ``self.net``, ``nets["G"]``.

    ``scope`` is the function (or file) of the statements that bind it, which are ``bindings``, in order. A loader that
    nothing holds by itself (``cycle(DataLoader(...))``) has no name: it is prepared right where it is ``made``.
    """

    name: str
    role: Role
    sites: frozenset[Site]
    scope: ast.AST
    bindings: tuple[ast.stmt, ...]
    phase: int = 0  # how many trainings of the scope come before it
    made: ast.Call | None = None


def find_homes(
    training: Training, wanted: frozenset[Site], aliases: frozenset[str] = frozenset(), *, where_made: bool = False
) -> list[Home]:
    """The place that holds each wanted object. Raises ``Unclear`` where an object has none or several.

    ``aliases`` are names of a model beside its wrapper, or of the wrapper: they are no places of their own. With
    ``where_made``, a place that a caller hands an object to gives way to the places that the callers have for it.
    """
    found, doubtful = _places(training, wanted)
    places = [place for place in found if place.name not in aliases]
    places = _of_training(training, places)
    if where_made:
        places = _without_receivers(training, places)
    homes = _chosen(training, _without_passing_names(training, places), wanted, doubtful)
    by_module = {module.tree: index for index, module in enumerate(training.module.active)}
    return sorted(
        homes,
        key=lambda h: (
            _ORDER.get(h.role, 9),
            by_module.get(training.module.root(h.bindings[0]), 0),
            min(s.lineno for s in h.bindings),
        ),
    )


# ---- places


def _places(training: Training, wanted: frozenset[Site]) -> tuple[list[Home], dict[Site, Unclear]]:
    """The places that certainly hold wanted objects, and what is doubtful about those that may hold something else."""
    doubtful: dict[Site, Unclear] = {}
    bindings: dict[tuple[ast.AST, str], list[ast.stmt]] = defaultdict(list)
    sites: dict[tuple[ast.AST, str], set[Site]] = defaultdict(set)
    for statement, leaf, text, one in _assigned(training):
        held = one.sites() & wanted
        if not held or _goes_on(training, statement, text):
            continue
        if training.reaches([statement], set(training.backwards)):
            continue  # what comes back from training
        others = [a for a in one if not isinstance(a, Object) and a != Const(None)]
        if others or one.sites() - wanted:
            unclear = Unclear(f"`{text}` may hold something other than what is trained", leaf, about=held)
            doubtful |= dict.fromkeys(held, unclear)
            continue
        place = training.module.function(statement), text
        if statement not in bindings[place]:
            bindings[place].append(statement)
        sites[place] |= held
    found = []
    for (scope, text), members in sites.items():
        roles = {s.role for s in members}
        if len(roles) > 1:
            raise Unclear(f"`{text}` holds objects of different roles", bindings[scope, text][0])
        found.append(Home(text, roles.pop(), frozenset(members), scope, tuple(bindings[scope, text])))
    return found, doubtful


def _assigned(training: Training) -> Iterator[tuple[ast.Assign | ast.AnnAssign, ast.expr, str, Value]]:
    """Each place that a statement binds, as it is written and in words, and what the place holds then."""
    for statement in training.module.walk():
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            for leaf in chain.from_iterable(map(_leaves, assigned_targets(statement))):
                for text, one in _held(ast.unparse(leaf), training.value(leaf)):
                    yield statement, leaf, text, one


def _goes_on(training: Training, statement: ast.Assign | ast.AnnAssign, text: str) -> bool:
    """Whether a place goes on to hold what it held: ``net = net.train()``, or in a loop any ``net = net.method()``."""
    made = statement.value
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Attribute):
        return False
    if ast.unparse(made.func.value) != text:
        return False
    if made.func.attr in ("train", "eval"):
        return True
    module = training.module
    return (
        training.value(made).sites() <= training.value(made.func.value).sites()
        and module.loop_around(statement, within=module.function(statement)) is not None
    )


def _leaves(target: ast.expr) -> Iterator[ast.expr]:
    """The variables, attributes and items that an assignment to this target binds."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from _leaves(item)
    elif isinstance(target, ast.Name):
        if target.id != "_":  # nobody wants to keep it
            yield target
    elif isinstance(target, ast.Attribute):
        if isinstance(target.value, ast.Name):
            yield target
    elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        yield target


def _held(text: str, one: Value) -> Iterator[tuple[str, Value]]:
    """A place and its value, or the items of the dict or list that it holds."""
    atoms = [a for a in one if a != Const(None)]
    if len(atoms) == 1 and isinstance(atoms[0], Mapping_):
        for key, item in atoms[0].items:
            quoted = f'"{key}"' if isinstance(key, str) and '"' not in key else repr(key)
            yield f"{text}[{quoted}]", item
    elif len(atoms) == 1 and isinstance(atoms[0], Sequence_) and not atoms[0].is_tuple:
        for index, item in enumerate(atoms[0].items):
            yield f"{text}[{index}]", item
    else:
        yield text, one


def _of_training(training: Training, places: list[Home]) -> list[Home]:
    """The places without those of code that does not train, such as another script, where training has its own."""
    module = training.module
    leading = {scope for call in training.backwards for scope in training.callers_of(module.function(call))}
    classes = {module.class_of(scope) for scope in leading} - {None}
    own = [p for p in places if p.scope in leading or module.class_of(p.scope) in classes]
    covered = set().union(*(place.sites for place in own), set())
    return [place for place in places if place in own or not place.sites <= covered]


def _without_receivers(training: Training, places: list[Home]) -> list[Home]:
    """The places without those that are only given a parameter, ``self.net = net``, of objects that others hold."""
    given = [place for place in places if all(_is_given(training, statement) for statement in place.bindings)]
    others = set().union(*(place.sites for place in places if place not in given), set())
    return [place for place in places if place not in given or not place.sites <= others]


def _is_given(training: Training, statement: ast.stmt) -> bool:
    function = training.module.function(statement)
    made = getattr(statement, "value", None)
    return (
        isinstance(made, ast.Name)
        and isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        and made.id in {parameter.arg for parameter in parameters(function)}
    )


def _without_passing_names(training: Training, places: list[Home]) -> list[Home]:
    """The places without a factory's local names of what its caller binds as well."""
    module = training.module
    kept = []
    for place in places:
        returned = any(
            isinstance(node, ast.Return)
            and node.value is not None
            and module.function(node) is place.scope
            and any(ast.unparse(n) == place.name for n in ast.walk(node.value) if isinstance(n, ast.expr))
            for node in module.walk(place.scope)
        )
        returned = returned and not training.reaches(getattr(place.scope, "body", []), set(training.backwards))
        elsewhere = set().union(*(other.sites for other in places if other.scope is not place.scope), set())
        if not (returned and place.sites <= elsewhere):
            kept.append(place)
    return kept


# ---- one place for each object


def _chosen(
    training: Training, places: list[Home], wanted: frozenset[Site], doubtful: dict[Site, Unclear]
) -> list[Home]:
    """One place for each object: where most of those that belong together are, and where they are trained with."""
    covered: dict[ast.AST, set[Site]] = defaultdict(set)
    for place in places:
        covered[place.scope] |= place.sites
    chosen: list[Home] = []
    for site in sorted(wanted, key=lambda s: (s.path, s.line, s.column)):
        held_by = [place for place in places if site in place.sites]
        where_made = _where_made(training, site)
        if not held_by and where_made is not None:
            chosen.append(where_made)
            continue
        if not held_by and site in doubtful:
            raise doubtful[site]
        if not held_by:
            told = f"the {site.role.value} made here is not held by a plain variable"
            raise Unclear(told, training.made_at(site), about=[site])
        programs = _by_program(training, site, held_by)
        homes = [_one_of(training, site, places_of_one, covered, where_made) for places_of_one in programs]
        if where_made in homes:
            homes = [where_made]  # for all programs that come there
        chosen += [home for home in homes if home not in chosen]
    return chosen


def _one_of(
    training: Training, site: Site, held_by: list[Home], covered: dict[ast.AST, set[Site]], where_made: Home | None
) -> Home:
    """The place of several that an object is trained in."""
    most = max(len(covered[place.scope]) for place in held_by)
    scopes = {place.scope for place in held_by if len(covered[place.scope]) == most}
    scope = scopes.pop() if len(scopes) == 1 else training.outermost(scopes)
    names = [place for place in held_by if place.scope is scope]
    plain = [place for place in names if not place.name.endswith("]")]
    used = [place for place in plain or names if _is_used_to_train(training, place)] or (plain or names)
    if len(used) > 1 and site.role is Role.MODEL:  # `net` is trained, `bare_net` beside it is saved
        used = [place for place in used if _is_run(training, place)] or used
    attributes = [place for place in used if "." in place.name]
    if len(used) > 1 and len(attributes) == 1:
        used = attributes
    if len(used) > 1 and where_made is not None:
        return where_made
    if len(used) > 1:
        listed = " and ".join(f"`{place.name}`" for place in used)
        told = f"the {site.role.value} made here goes by several names: {listed}"
        raise Unclear(told, training.made_at(site), about=[site])
    return used[0]


def _by_program(training: Training, site: Site, places: list[Home]) -> list[list[Home]]:
    """The places, apart by the scripts that each have a factory in common make an object of their own."""
    made = training.made_at(site)
    scopes = list(dict.fromkeys(place.scope for place in places))
    if made is None or len(scopes) == 1:
        return [places]
    factory = training.module.function(made)
    programs: list[tuple[set[ast.AST], list[ast.AST]]] = []
    for scope in scopes:
        above, own = set(training.callers_of(scope)), [scope]
        for program in [program for program in programs if program[0] & above]:
            programs.remove(program)
            above, own = above | program[0], own + program[1]
        programs.append((above, own))
    if not all(any(factory in training.called_from(scope) for scope in own) for _, own in programs):
        return [places]
    return [[place for place in places if place.scope in own] for _, own in programs]


def _where_made(training: Training, site: Site) -> Home | None:
    """The call that makes a loader to train on, as its place: a loader can go through ``prepare`` on its own."""
    made = training.made_at(site)
    if site not in training.loaders_trained_on or not isinstance(made, ast.Call) or not training.module.is_active(made):
        return None
    if len(training.store.details[site].nodes) > 1 or training.value(made).sites() != {site}:
        return None
    if any(isinstance(around, ast.Lambda) for around in training.module.ancestors(made)):
        return None
    if _is_begun_before_models(training, site, made):
        return None
    statement = training.module.statement(made)
    return Home("", Role.LOADER, frozenset([site]), training.module.function(made), (statement,), made=made)


def _is_begun_before_models(training: Training, site: Site, made: ast.Call) -> bool:
    """Whether ``iter(DataLoader(...))`` may run before a model is made: a prepared loader draws its seed only later."""
    around = training.module.parents[made]
    begun = isinstance(around, ast.Call) and training.value(around.func) == value(Library("builtins.iter"))
    return begun and not all((m.path, m.line < site.line) == (site.path, True) for m in training.models)


def _is_run(training: Training, place: Home) -> bool:
    """Whether the model in a place is called under this name."""
    return any(
        isinstance(node, ast.Call) and training.forwards(node) & place.sites and ast.unparse(node.func) == place.name
        for node in training.module.walk(place.scope)
    )


def _is_used_to_train(training: Training, place: Home) -> bool:
    """Whether a place is read to call something on it, or handed to a function (attributes: by any method)."""
    module = training.module
    owner = module.class_of(place.scope) if "." in place.name else None
    for node in module.walk(owner or place.scope):
        if isinstance(node, ast.Call):
            named = [node.func, *node.args, *(k.value for k in node.keywords)]
            if any(isinstance(n, (ast.Name, ast.Attribute)) and ast.unparse(n) == place.name for n in named):
                return True
        elif isinstance(node, (ast.For, ast.comprehension)) and ast.unparse(node.iter) == place.name:
            return True
        elif isinstance(node, ast.Attribute) and node.attr in ("step", "zero_grad"):
            if ast.unparse(node.value) == place.name:
                return True
    return False

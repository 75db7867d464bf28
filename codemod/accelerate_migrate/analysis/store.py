"""What the interpretation keeps: names of scopes, objects of sites, values of nodes, and who calls whom."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Hashable

from accelerate_migrate.analysis import library
from accelerate_migrate.analysis.activations import Activation, Clock
from accelerate_migrate.analysis.atoms import ClassRef, Details, FunctionRef, Library, Role, Site
from accelerate_migrate.analysis.frames import Frame
from accelerate_migrate.analysis.modules import Module, Program, Scope
from accelerate_migrate.analysis.scopes import Names, names_of
from accelerate_migrate.analysis.values import ANY, BOTTOM, Value, value

BUILTINS = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)

_BUILTIN_VALUES = {name: value(Library("builtins." + name)) for name in BUILTINS}


class Store:
    """The growing knowledge of one run. ``grew`` says whether the last round learned anything that others may read."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.grew = False
        self.clock = Clock()
        self.running = Activation(None, 0)  # the body that runs: what is read and noted is its doing
        self.details: dict[Site, Details] = defaultdict(Details)
        self.values: dict[ast.AST, Value] = {}
        self.calls: dict[ast.Call, set[ast.AST]] = defaultdict(set)
        self.callers: dict[ast.AST, set[ast.Call]] = defaultdict(set)
        self.class_bodies: dict[ast.ClassDef, dict[str, Value]] = {}
        self.starred: dict[ast.Module, set[str]] = defaultdict(set)
        self.flags: dict[tuple[Module, str], Value] = {}
        # Names that other files take from a module; "*" for all.
        self.exported: dict[Module, set[str]] = defaultdict(set)
        self.imported: dict[str, Module] = {}  # files in folders that are no packages, by the name they are imported by
        self._classes: dict[ast.ClassDef, tuple[dict[str, Value], list[Value]]] = {}
        self._names: dict[Scope, Names] = {}
        self._around: dict[Scope, tuple[Scope, ...]] = {}
        self._texts: dict[ast.AST, str] = {}
        self._stored: dict[tuple[Scope, str], Value] = {}
        self._globals_written: dict[Module, set[str]] = defaultdict(set)
        self._attributes: dict[tuple[str, str], Value] = {}

    def start_round(self) -> None:
        """Forget what is found anew in each round; keep what other scopes read."""
        self.grew = False
        self.values = {}

    # ---- nodes

    def note(self, node: ast.AST, one: Value) -> Value:
        """Join what an expression may be with what it was in other contexts."""
        notes = self.running.notes
        known = notes.get(node)
        if known is one:
            return one
        notes[node] = one if known is None else known | one
        known = self.values.get(node)
        if known is not one:
            self.values[node] = one if known is None else known | one
        return one

    def note_call(self, node: ast.Call, callee: FunctionRef) -> None:
        """Remember that a call may enter a function of the program."""
        self.calls[node].add(callee.node)
        self.callers[callee.node].add(node)

    # ---- names

    def scope_names(self, scope: Scope) -> Names:
        """The names that a scope binds."""
        names = self._names.get(scope)
        if names is None:
            names = self._names[scope] = names_of(scope)
        return names

    def stored(self, scope: Scope, name: str) -> Value | None:
        """The join of everything bound to a scope's name; ``None`` where the scope does not bind it."""
        key = (scope, name)
        self.running.reads.setdefault(key, self.clock.now)
        known = self._stored.get(key)
        if known is None and name in self.scope_names(scope).bound:
            return BOTTOM
        return known

    def remember(self, scope: Scope, name: str, one: Value) -> None:
        """Join a value into what other scopes see under this name."""
        known = self._stored.get((scope, name))
        if known is one:
            return
        joined = one if known is None else known | one
        if known is None or joined != known:
            self._stored[scope, name] = joined
            self._learned((scope, name))

    def _learned(self, key: Hashable) -> None:
        self.grew = True
        self.clock.change(key)

    def read(self, key: Hashable) -> None:
        """Note that the body that runs depends on this."""
        self.running.reads.setdefault(key, self.clock.now)

    def bind(self, name: str, one: Value, frame: Frame) -> None:
        """Bind a name in a frame: local, global or nonlocal, as the scope declares it."""
        names = self.scope_names(frame.scope)
        if isinstance(frame.scope, ast.Module) or (name not in names.global_ and name not in names.nonlocal_):
            frame.env[name] = one
            if name not in names.bound and isinstance(frame.scope, ast.Module):
                if name not in self.starred[frame.scope]:
                    self.starred[frame.scope].add(name)
                    self.clock.change(frame.scope)
            self.remember(frame.scope, name, one)
            return
        home: Scope = frame.module.tree
        if name in names.nonlocal_:
            for outer in frame.module.ancestors(frame.scope):
                if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)) and name in self.scope_names(outer).bound:
                    home = outer
                    break
        else:
            if name not in self._globals_written[frame.module]:
                self._globals_written[frame.module].add(name)
                self.clock.change(frame.module)
        frame.env[name] = one
        self.remember(home, name, one)

    def lookup(self, name: str, frame: Frame) -> Value:
        """The value of a name read in a frame."""
        module = frame.module
        if name in frame.env:
            found = frame.env[name]
            if isinstance(frame.scope, ast.Module):
                self.read(module)
                if name in self._globals_written[module]:
                    return found | (self.stored(module.tree, name) or BOTTOM)
            return found
        if not isinstance(frame.scope, ast.Module) and name in self.scope_names(frame.scope).bound:
            return BOTTOM
        for outer in self._functions_around(frame.scope, module):
            known = self.stored(outer, name)
            if known is not None:
                return known
        known = self.stored(module.tree, name)
        if known is not None:
            return known
        return _BUILTIN_VALUES.get(name, ANY)

    def _functions_around(self, scope: Scope, module: Module) -> tuple[Scope, ...]:
        """The functions in which a scope stands, innermost first."""
        found = self._around.get(scope)
        if found is None:
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
            found = tuple(outer for outer in module.ancestors(scope) if isinstance(outer, kinds))
            self._around[scope] = found
        return found

    def text(self, node: ast.AST) -> str:
        """The source of a node."""
        found = self._texts.get(node)
        if found is None:
            found = self._texts[node] = ast.unparse(node)
        return found

    # ---- attributes

    def attribute_of_unknown(self, module: Module, text: str) -> Value | None:
        """What was stored under ``args.name`` on an object of which nothing else is known."""
        self.read((module.path, text))
        known = self._attributes.get((module.path, text))
        if known is not None:
            return known
        flag = (module, text.rsplit(".", 1)[-1])
        self.read(flag)
        return self.flags.get(flag)

    def remember_flag(self, module: Module, name: str, one: Value) -> None:
        """Note what the parsed arguments of a module have under this name: a device, the number of the process."""
        if (module, name) not in self.flags:
            self.flags[module, name] = one
            self._learned((module, name))

    def remember_attribute(self, module: Module, text: str, one: Value) -> None:
        """Join a value into ``args.name`` of an object of which nothing else is known."""
        known = self._attributes.get((module.path, text), BOTTOM)
        if known | one != known:
            self._attributes[module.path, text] = known | one
            self._learned((module.path, text))

    def set_field(self, site: Site, name: str, one: Value) -> None:
        """Join a value into an object's attribute."""
        fields = self.details[site].fields
        known = fields.get(name, BOTTOM)
        if known | one != known:
            fields[name] = known | one
            self._learned((site, name))

    # ---- objects

    def site(self, role: Role, node: ast.Call, frame: Frame, made_by: str, ref: ClassRef | None = None) -> Site:
        """The allocation site of a call that makes an object."""
        site = Site(role, frame.module.path, node.lineno, node.col_offset, made_by)
        details = self.details[site]
        details.nodes.add(node)
        if ref is not None:
            details.class_def = ref
        return site

    # ---- classes

    def base_classes(self, ref: ClassRef) -> list[ClassRef | Library]:
        """A class of the program and its bases, nearest first, library classes included."""
        found: list[ClassRef | Library] = [ref]
        queue = [ref]
        while queue:
            current = queue.pop(0)
            self.read(current.node)
            for base in current.node.bases:
                for atom in self.values.get(base, BOTTOM):
                    if isinstance(atom, ClassRef) and atom not in found:
                        found.append(atom)
                        queue.append(atom)
                    elif isinstance(atom, Library):
                        found.append(atom)
        return found

    def define_class(self, node: ast.ClassDef, body: dict[str, Value]) -> None:
        """Keep what a class defines, and with it which classes it is derived from."""
        facts = (body, [self.values.get(base, BOTTOM) for base in node.bases])
        if self._classes.get(node) != facts:
            self._classes[node] = facts
            self.clock.change(node)
        self.class_bodies[node] = body

    def class_attribute(self, ref: ClassRef, name: str) -> Value:
        """What a class or its bases in the program define under a name; bottom if none does."""
        for base in self.base_classes(ref):
            if isinstance(base, ClassRef):
                body = self.class_bodies.get(base.node, {})
                if name in body:
                    return body[name]
        return BOTTOM

    def class_role(self, ref: ClassRef) -> Role | None:
        """The role that the library bases of a class give its objects."""
        for base in self.base_classes(ref):
            if isinstance(base, Library):
                role = library.base_role(base.name)
                if role is not None:
                    return role
        return None

    def instances(self, node: ast.ClassDef) -> list[Site]:
        """The sites that make objects of this class."""
        return [s for s, d in self.details.items() if d.class_def is not None and d.class_def.node is node]

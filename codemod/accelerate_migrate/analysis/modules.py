"""The files of a program as trees with parents and scopes, and how a name finds another file."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeAlias

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Scope: TypeAlias = ast.Module | FunctionNode | ast.ClassDef
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
MAX_NEIGHBOUR_BYTES = 1 << 20
MAX_STEPS = 3


def is_main_block(node: ast.AST) -> bool:
    """Whether a node is ``if __name__ == "__main__":``."""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def name_said(node: ast.AST) -> str | None:
    """The name that a variable, an attribute or a part of an import says."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else node.name if isinstance(node, ast.alias) else None


class Tree:
    """Syntax trees with parents and scopes: those of one file, or of several that are looked at together."""

    parents: Mapping[ast.AST, ast.AST]

    def walk(self, node: ast.AST | None = None) -> Iterable[ast.AST]:
        """A node and everything below it (default: everything), outer nodes first, in the order of the source."""
        raise NotImplementedError

    def column(self, node: ast.AST) -> int:
        """The column of a node, in characters, from 1 (``ast`` counts bytes, from 0)."""
        raise NotImplementedError

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around this one, innermost first."""
        parents = self.parents
        parent = parents.get(node)
        while parent is not None:
            yield parent
            parent = parents.get(parent)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds this node (itself, if it is one)."""
        current: ast.AST | None = node
        while not isinstance(current, ast.stmt):
            assert current is not None, "a node outside any statement"
            current = self.parents.get(current)
        return current

    def scope(self, node: ast.AST) -> Scope:
        """The function, class or module in whose body the node runs (a decorator or default belongs outside)."""
        child: ast.AST = node
        for parent in self.ancestors(node):
            if isinstance(parent, DEFINITIONS):
                if child in parent.body:
                    return parent
            elif isinstance(parent, (ast.Lambda, ast.Module)):
                return parent
            child = parent
        assert isinstance(node, ast.Module), "a node outside any file"
        return node

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Module:
        """The innermost ``def`` around the node, or the module; lambdas and classes are looked through."""
        scope = self.scope(node)
        while isinstance(scope, (ast.Lambda, ast.ClassDef)):
            scope = self.scope(scope)
        return scope

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        """The class whose method this function is, or is nested in; ``None`` for a plain function."""
        current = function
        for parent in self.ancestors(function):
            if isinstance(parent, ast.ClassDef):
                return parent if isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
            if not isinstance(parent, (ast.If, ast.Try, ast.With)):
                current = parent
        return None

    def loop_around(self, node: ast.AST, within: ast.AST | None = None) -> ast.stmt | None:
        """The innermost loop around a node, inside ``within`` where that is given."""
        for around in self.ancestors(node):
            if around is within:
                return None
            if isinstance(around, LOOPS):
                return around
        return None

    def root(self, node: ast.AST) -> ast.Module:
        """The tree of the file that holds this node."""
        top = next(reversed([node, *self.ancestors(node)]))
        assert isinstance(top, ast.Module)
        return top

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that holds this one."""
        parent = self.parents[statement]
        for name in ("body", "orelse", "finalbody"):
            held = getattr(parent, name, None)
            if isinstance(held, list) and statement in held:
                return held
        raise AssertionError("a statement outside any block")

    def outermost(self, node: ast.AST, scope: ast.AST) -> ast.stmt:
        """The statement of ``scope``'s own body that holds this node."""
        current: ast.AST = node
        while (parent := self.parents.get(current)) is not scope:
            assert parent is not None, "the node is not in this scope"
            current = parent
        assert isinstance(current, ast.stmt)
        return current


@dataclass(eq=False)
class Module(Tree):
    """One parsed file. ``path`` is as reached from the argument; ``editable`` is false for one only read for facts."""

    path: str
    tree: ast.Module
    data: bytes
    editable: bool = True
    folder: str = field(init=False)

    def __post_init__(self) -> None:
        self.folder = os.path.dirname(os.path.abspath(self.path))

    @cached_property
    def _index(self) -> tuple[list[ast.AST], dict[ast.AST, tuple[int, int]], dict[ast.AST, ast.AST]]:
        """Every node in the order of the source, the part of that list below each node, and each node's parent."""
        nodes: list[ast.AST] = []
        spans: dict[ast.AST, tuple[int, int]] = {}
        parents: dict[ast.AST, ast.AST] = {}
        open_: list[tuple[ast.AST, int, Iterator[ast.AST]]] = [(self.tree, 0, ast.iter_child_nodes(self.tree))]
        nodes.append(self.tree)
        while open_:
            node, start, children = open_[-1]
            child = next(children, None)
            if child is None:
                spans[node] = (start, len(nodes))
                open_.pop()
                continue
            parents[child] = node
            open_.append((child, len(nodes), ast.iter_child_nodes(child)))
            nodes.append(child)
        return nodes, spans, parents

    def walk(self, node: ast.AST | None = None) -> Iterable[ast.AST]:
        nodes, spans, _ = self._index
        if node is None:
            return nodes
        span = spans.get(node)
        return nodes[span[0] : span[1]] if span is not None else ast.walk(node)

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines of the file, without their ends."""
        return self.data.splitlines()

    def column(self, node: ast.AST) -> int:
        line, offset = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        prefix = self.lines[line - 1][:offset] if line <= len(self.lines) else b""
        return len(prefix.decode("utf-8", "replace")) + 1

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:  # type: ignore[override]
        """The parent of every node."""
        return self._index[2]

    @cached_property
    def parameterised(self) -> frozenset[str]:
        """The names and attributes (by their source) of which the file asks ``.parameters()``."""
        return self._asked_for("parameters")

    @cached_property
    def stepped(self) -> frozenset[str]:
        """The names and attributes of which the file asks both ``.step()`` and ``.zero_grad()``."""
        return self._asked_for("step") & self._asked_for("zero_grad")

    @cached_property
    def asked_for_gradients(self) -> frozenset[str]:
        """The names that the file binds to what ``requires_grad_()`` gives."""
        return frozenset(
            target.id
            for node in self.walk()
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and node.value.func.attr == "requires_grad_"
            for target in node.targets
            if isinstance(target, ast.Name)
        )

    def _asked_for(self, attribute: str) -> frozenset[str]:
        return frozenset(
            ast.unparse(node.value)
            for node in self.walk()
            if isinstance(node, ast.Attribute)
            and node.attr == attribute
            and isinstance(node.value, (ast.Name, ast.Attribute))
        )


class Files(Tree):
    """Several files, looked at as one tree. ``walk`` without a node goes through the ``active`` ones only."""

    def __init__(self, modules: Iterable[Module], active: Iterable[Module]) -> None:
        self.active = tuple(active)
        self._by_tree = {module.tree: module for module in modules}
        self.parents: dict[ast.AST, ast.AST] = {}
        for module in self._by_tree.values():
            self.parents.update(module.parents)
        self._modules: dict[ast.AST, Module | None] = {}

    @cached_property
    def _nodes(self) -> list[ast.AST]:
        return [found for module in self.active for found in module.walk()]

    @cached_property
    def assignments(self) -> dict[str, list[ast.Assign]]:
        """The plain assignments to each name, wherever they stand."""
        found: dict[str, list[ast.Assign]] = {}
        for node in self.walk():
            if isinstance(node, ast.Assign):
                for name in dict.fromkeys(t.id for t in node.targets if isinstance(t, ast.Name)):
                    found.setdefault(name, []).append(node)
        return found

    def walk(self, node: ast.AST | None = None) -> Iterable[ast.AST]:
        if node is None:
            return self._nodes
        module = self.module_of(node)
        return module.walk(node) if module is not None else ast.walk(node)

    @cached_property
    def stems(self) -> frozenset[str]:
        """The absolute paths of every file, without their ending; a package is its folder."""
        stems = (os.path.splitext(os.path.abspath(module.path))[0] for module in self._by_tree.values())
        return frozenset(stem.removesuffix(os.sep + "__init__") for stem in stems)

    def everywhere(self) -> Iterator[ast.AST]:
        """Every node of every file, those that are only read included."""
        for module in self._by_tree.values():
            yield from module.walk()

    @cached_property
    def said(self) -> Counter[str]:
        """How often each name is said, in every file: as a variable, an attribute or an import."""
        return Counter(name for node in self.everywhere() if (name := name_said(node)) is not None)

    def beside(self) -> Iterator[ast.AST]:
        """Every node of the files that are only read."""
        for module in self._by_tree.values():
            if not module.editable:
                yield from module.walk()

    def module_of(self, node: ast.AST) -> Module | None:
        """The file that holds this node, or ``None`` for a node of another program."""
        if node not in self._modules:
            top = node
            while (parent := self.parents.get(top)) is not None:
                top = parent
            self._modules[node] = self._by_tree.get(top) if isinstance(top, ast.Module) else None
        return self._modules[node]

    def is_active(self, node: ast.AST) -> bool:
        """Whether this node may be changed."""
        return self.module_of(node) in self.active

    def column(self, node: ast.AST) -> int:
        module = self.module_of(node)
        return module.column(node) if module is not None else 1


def parse_quietly(data: bytes, path: str) -> ast.Module:
    """``ast.parse`` without its warnings about the file's own text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(data, path)


class Program:
    """The modules a run sees together: ``modules`` may be changed.

    Neighbours on disk are read, never changed, to follow imports as far as ``steps`` files away from a module.
    """

    def __init__(self, modules: Iterable[Module], steps: int = MAX_STEPS) -> None:
        self.modules = list(modules)
        self._limit = steps
        self._by_path: dict[str, Module | None] = {os.path.abspath(m.path): m for m in self.modules}
        self._steps: dict[Module, int] = {}

    def all(self) -> list[Module]:
        """Every module that has been looked at, neighbours included."""
        return [module for module in self._by_path.values() if module is not None]

    def find(self, dotted: str, importer: Module, level: int = 0) -> Module | None:
        """The program's module for ``import dotted`` (or ``from .dotted``) in ``importer``, or ``None``.

        Folders are tried as Python would: the script's own folder first, then the folders above it up to three.
        """
        steps = self._steps.get(importer, 0) + 1
        for candidate in import_paths(importer.folder, dotted, level, search_path(importer.data)):
            path = os.path.abspath(candidate)
            if path not in self._by_path:
                if steps > self._limit:
                    continue
                module = self._by_path[path] = _neighbour(path)
                if module is not None:
                    self._steps[module] = steps
            found = self._by_path[path]
            if found is not None and found is not importer:
                return found
        return None


_LIBRARIES = frozenset({"torch", "torchvision", "horovod", "apex", "deepspeed", "accelerate"})
"""What these names mean is known by heart, in a checkout of the library too, whose own code is no training program."""

_SEARCH_PATH = re.compile(rb"""sys\.path\.(?:append|insert)\(\s*(?:\d+\s*,\s*)?['"]([\w./-]+)['"]\s*\)""")


def search_path(data: bytes) -> list[str]:
    """The folders that a file puts on the path for imports, as written there."""
    return [found.decode() for found in _SEARCH_PATH.findall(data)] if b"sys.path" in data else []


def import_paths(folder: str, dotted: str, level: int = 0, further: Iterable[str] = ()) -> Iterator[str]:
    """The files that ``import dotted`` (or ``from .dotted``) in a file of this folder may mean, likely ones first.

    ``further`` are folders that the file puts on the path.
    """
    if not level and dotted.partition(".")[0] in _LIBRARIES:
        return
    base = folder
    for _ in range(max(level - 1, 0)):
        base = os.path.dirname(base)
    bases = [base]
    if not level:
        bases += [os.path.normpath(os.path.join(base, added)) for added in further]
        bases += [os.path.normpath(os.path.join(base, *[".."] * n)) for n in (1, 2, 3)]
        bases += [folder for above in bases for folder in _source_folders(above)]
    relative = dotted.replace(".", os.sep)
    for above in bases:
        stem = os.path.join(above, relative) if relative else above
        yield stem + ".py"
        yield os.path.join(stem, "__init__.py")


@lru_cache(maxsize=1024)
def _source_folders(above: str) -> tuple[str, ...]:
    """The folders that scripts beside them put on ``sys.path``, where they are there."""
    return tuple(folder for name in ("lib", "src") if os.path.isdir(folder := os.path.join(above, name)))


def _neighbour(path: str) -> Module | None:
    """A file on disk that is read only, or ``None``."""
    if not os.path.isfile(path) or os.path.getsize(path) > MAX_NEIGHBOUR_BYTES:
        return None
    try:
        with open(path, "rb") as stream:
            data = stream.read()
        return Module(path, parse_quietly(data, path), data, editable=False)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None

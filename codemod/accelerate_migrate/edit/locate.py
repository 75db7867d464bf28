"""Which libcst node is which `ast` node: a descent of both trees side by side.

Nothing is compared by position. From a pair of matching nodes, each `ast` child has a *path* to its libcst node: the
fields to follow, and the place in a sequence where there is one. Most node types need one line of ``FIELDS``; the few
that libcst shapes otherwise (chains of ``and``, arguments, subscripts, comprehensions, f-strings) have a function.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, cast

import libcst as cst

Step: TypeAlias = tuple[str, int | None]  # a field and a place in it; the field is "" where the node is a sequence
Path: TypeAlias = tuple[Step, ...]
Child: TypeAlias = tuple[ast.AST, Path]


class RoundTripError(Exception):
    """libcst reads this file otherwise than Python does, or cannot give its bytes back: it is not edited."""


# ast field -> libcst path; "[]" follows each element of a sequence. A field that is None in the ast is skipped.
FIELDS: dict[str, dict[str, str]] = {
    # statements
    "AnnAssign": {"target": "target", "annotation": "annotation.annotation", "value": "value"},
    "Assert": {"test": "test", "msg": "msg"},
    "Assign": {"targets": "targets[].target", "value": "value"},
    "AsyncFor": {"target": "target", "iter": "iter"},
    "AsyncFunctionDef": {
        "decorator_list": "decorators[].decorator",
        "args": "params",
        "returns": "returns.annotation",
        "type_params": "type_parameters.params[]",
    },
    "AsyncWith": {"items": "items[]"},
    "AugAssign": {"target": "target", "value": "value"},
    "ClassDef": {"decorator_list": "decorators[].decorator", "type_params": "type_parameters.params[]"},
    "ExceptHandler": {"type": "type"},
    "Expr": {"value": "value"},
    "For": {"target": "target", "iter": "iter"},
    "FunctionDef": {
        "decorator_list": "decorators[].decorator",
        "args": "params",
        "returns": "returns.annotation",
        "type_params": "type_parameters.params[]",
    },
    "If": {"test": "test"},
    "Import": {"names": "names[]"},
    "Match": {"subject": "subject", "cases": "cases[]"},
    "Raise": {"exc": "exc", "cause": "cause.item"},
    "Return": {"value": "value"},
    "Try": {"handlers": "handlers[]"},
    "TryStar": {"handlers": "handlers[]"},
    "TypeAlias": {"name": "name", "type_params": "type_parameters.params[]", "value": "value"},
    "While": {"test": "test"},
    "With": {"items": "items[]"},
    "match_case": {"pattern": "pattern", "guard": "guard"},
    "withitem": {"context_expr": "item", "optional_vars": "asname.name"},
    # type parameters
    "ParamSpec": {"default_value": "default"},
    "TypeVar": {"bound": "param.bound", "default_value": "default"},
    "TypeVarTuple": {"default_value": "default"},
    # expressions
    "Attribute": {"value": "value"},
    "Await": {"value": "expression"},
    "BinOp": {"left": "left", "right": "right"},
    "Compare": {"left": "left", "comparators": "comparisons[].comparator"},
    "DictComp": {"key": "key", "value": "value"},
    "FormattedValue": {"value": "expression"},
    "GeneratorExp": {"elt": "elt"},
    "IfExp": {"test": "test", "body": "body", "orelse": "orelse"},
    "Interpolation": {"value": "expression"},
    "Lambda": {"args": "params", "body": "body"},
    "ListComp": {"elt": "elt"},
    "NamedExpr": {"target": "target", "value": "value"},
    "SetComp": {"elt": "elt"},
    "Slice": {"lower": "lower", "upper": "upper", "step": "step"},
    "Starred": {"value": "value"},
    "UnaryOp": {"operand": "expression"},
    "Yield": {"value": "value"},
    "YieldFrom": {"value": "value.item"},
    "arg": {"annotation": "annotation.annotation"},
    "comprehension": {"target": "target", "iter": "iter", "ifs": "ifs[].test"},
    "keyword": {"value": "value"},
    # patterns
    "MatchAs": {"pattern": "pattern"},
    "MatchClass": {"cls": "cls", "patterns": "patterns[].value", "kwd_patterns": "kwds[].pattern"},
    "MatchMapping": {"keys": "elements[].key", "patterns": "elements[].pattern"},
    "MatchOr": {"patterns": "patterns[].pattern"},
    "MatchValue": {"value": "value"},
}


@cache
def _steps(text: str) -> tuple[tuple[str, bool], ...]:
    return tuple((part.removesuffix("[]"), part.endswith("[]")) for part in text.split("."))


def _paths(value: object, path: str) -> Iterator[Child]:
    """The children in one ast field, each with its path: ``path`` with the place in the sequence filled in."""
    if isinstance(value, ast.AST):
        yield value, tuple((name, None) for name, _ in _steps(path))
    elif isinstance(value, list):
        for i, child in enumerate(value):
            yield child, tuple((name, i if many else None) for name, many in _steps(path))


def _regular(node: ast.AST) -> Iterator[Child]:
    for field, path in FIELDS.get(type(node).__name__, {}).items():
        yield from _paths(getattr(node, field, None), path)


def _same_length(node: ast.AST, ours: Sequence[object], theirs: Sequence[object]) -> None:
    if len(ours) != len(theirs):
        raise RoundTripError(f"line {getattr(node, 'lineno', '?')}: {type(node).__name__} has other children in libcst")


# --- the irregular ones -----------------------------------------------------------------------------------------------


def _bool_op(node: ast.BoolOp, _: Any) -> Iterator[Child]:
    """``a and b and c`` is one node of ast and ``(a and b) and c`` of libcst."""
    last = len(node.values) - 1
    for i, value in enumerate(node.values):
        down: Path = (("left", None),) * (last - i)
        yield value, down if i == 0 else (*down, ("right", None))


def _elements(node: ast.List | ast.Set | ast.Tuple, tree: Any) -> Iterator[Child]:
    _same_length(node, node.elts, tree.elements)
    for i, value in enumerate(node.elts):
        here: Step = ("elements", i)
        yield value, (here,) if isinstance(value, ast.Starred) else (here, ("value", None))


def _dict(node: ast.Dict, tree: Any) -> Iterator[Child]:
    _same_length(node, node.values, tree.elements)
    for i, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
        if key is not None:
            yield key, (("elements", i), ("key", None))
        yield value, (("elements", i), ("value", None))


def _arguments_of_call(node: ast.Call | ast.ClassDef, fields: tuple[str, ...], tree: Any) -> Iterator[Child]:
    """Positional and keyword arguments may alternate in the text; ast keeps them in two lists."""
    positional = node.args if isinstance(node, ast.Call) else node.bases
    places: list[Step] = [(field, i) for field in fields for i in range(len(getattr(tree, field)))]
    plain, named = list[Step](), list[Step]()
    for place in places:
        arg = getattr(tree, place[0])[place[1]]
        (named if arg.keyword is not None or arg.star == "**" else plain).append(place)
    _same_length(node, positional, plain)
    _same_length(node, node.keywords, named)
    for value, place in zip(positional, plain, strict=True):
        yield value, (place,) if isinstance(value, ast.Starred) else (place, ("value", None))
    yield from ((keyword, (place,)) for keyword, place in zip(node.keywords, named, strict=True))


def _call(node: ast.Call, tree: Any) -> Iterator[Child]:
    yield node.func, (("func", None),)
    yield from _arguments_of_call(node, ("args",), tree)


def _class(node: ast.ClassDef, tree: Any) -> Iterator[Child]:
    yield from _regular(node)
    yield from _arguments_of_call(node, ("bases", "keywords"), tree)


def _parameters(node: ast.arguments, tree: Any) -> Iterator[Child]:
    """``ast.arg`` is a libcst ``Param``; the defaults lie inside of those."""
    positional: list[Step] = [("posonly_params", i) for i in range(len(tree.posonly_params))]
    positional += [("params", i) for i in range(len(tree.params))]
    params = [*node.posonlyargs, *node.args]
    _same_length(node, params, positional)
    first_default = len(params) - len(node.defaults)
    for i, (param, place) in enumerate(zip(params, positional, strict=True)):
        yield param, (place,)
        if i >= first_default:
            yield node.defaults[i - first_default], (place, ("default", None))
    if node.vararg is not None:
        yield node.vararg, (("star_arg", None),)
    _same_length(node, node.kwonlyargs, tree.kwonly_params)
    for i, (param, default) in enumerate(zip(node.kwonlyargs, node.kw_defaults, strict=True)):
        yield param, (("kwonly_params", i),)
        if default is not None:
            yield default, (("kwonly_params", i), ("default", None))
    if node.kwarg is not None:
        yield node.kwarg, (("star_kwarg", None),)


def _subscript(node: ast.Subscript, tree: Any) -> Iterator[Child]:
    """``x[a, b]`` has a tuple in ast and several elements in libcst; ``x[(a, b)]`` has a tuple in both."""
    yield node.value, (("value", None),)
    only = tree.slice[0]
    many = len(tree.slice) > 1 or isinstance(only.comma, cst.Comma) or getattr(only.slice, "star", None) is not None
    if many and isinstance(node.slice, ast.Tuple):
        yield node.slice, (("slice", None),)
    else:
        yield node.slice, _inside_element(node.slice, ("slice", 0))


def _inside_element(value: ast.expr, place: Step) -> Path:
    element: Path = (place, ("slice", None))
    return element if isinstance(value, ast.Slice | ast.Starred) else (*element, ("value", None))


def _comprehension(node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, _: Any) -> Iterator[Child]:
    """The second ``for`` hangs inside the first one in libcst."""
    yield from _regular(node)
    for i, generator in enumerate(node.generators):
        yield generator, (("for_in", None), *((("inner_for_in", None),) * i))


def _formatted(node: Any, tree: Any) -> Iterator[Child]:
    """Only the ``{…}`` of an f-string correspond: ast joins the text between, and strings that stand side by side."""
    values = [value for value in node.values if type(value).__name__ in ("FormattedValue", "Interpolation")]
    places = list(_placeholders(tree, ()))
    _same_length(node, values, places)
    yield from zip(values, places, strict=True)


def _placeholders(tree: Any, path: Path, field: str = "parts") -> Iterator[Path]:
    if isinstance(tree, cst.ConcatenatedString):
        yield from _placeholders(tree.left, (*path, ("left", None)))
        yield from _placeholders(tree.right, (*path, ("right", None)))
    else:
        for i, part in enumerate(getattr(tree, field, None) or ()):
            if hasattr(part, "expression"):
                yield (*path, (field, i))


def _formatted_value(node: Any, tree: Any) -> Iterator[Child]:
    yield from _regular(node)
    if node.format_spec is not None:
        values = [value for value in node.format_spec.values if not isinstance(value, ast.Constant)]
        places = list(_placeholders(tree, (), "format_spec"))
        _same_length(node, values, places)
        yield from zip(values, places, strict=True)


def _delete(node: ast.Delete, tree: Any) -> Iterator[Child]:
    if isinstance(tree.target, cst.Tuple) and not tree.target.lpar:
        for i, target in enumerate(node.targets):
            yield target, (("target", None), ("elements", i), ("value", None))
    else:
        yield node.targets[0], (("target", None),)


def _if(node: ast.If, tree: Any) -> Iterator[Child]:
    """An ``elif`` is a statement in ``orelse`` for ast and hangs on the ``if`` itself in libcst."""
    yield from _regular(node)
    if isinstance(tree.orelse, cst.If):
        yield node.orelse[0], (("orelse", None),)


def _match_sequence(node: ast.MatchSequence, tree: Any) -> Iterator[Child]:
    _same_length(node, node.patterns, tree.patterns)
    for i, pattern in enumerate(node.patterns):
        here: Step = ("patterns", i)
        yield pattern, (here,) if isinstance(pattern, ast.MatchStar) else (here, ("value", None))


_IRREGULAR: dict[str, Callable[[Any, Any], Iterator[Child]]] = {
    "BoolOp": _bool_op,
    "Call": _call,
    "ClassDef": _class,
    "Delete": _delete,
    "Dict": _dict,
    "DictComp": _comprehension,
    "FormattedValue": _formatted_value,
    "GeneratorExp": _comprehension,
    "If": _if,
    "Interpolation": _formatted_value,
    "JoinedStr": _formatted,
    "List": _elements,
    "ListComp": _comprehension,
    "MatchSequence": _match_sequence,
    "Set": _elements,
    "SetComp": _comprehension,
    "Subscript": _subscript,
    "TemplateStr": _formatted,
    "Tuple": _elements,
    "arguments": _parameters,
}


def children(node: ast.AST, tree: Any) -> Iterator[Child]:
    """The ast children of ``node`` outside of its blocks, each with its path from ``tree``, the same node in libcst."""
    if isinstance(tree, Sequence):  # the bare tuple of a subscript: its elements are those of the subscript
        elements = cast(ast.Tuple, node).elts
        return ((value, _inside_element(value, ("", i))) for i, value in enumerate(elements))
    special = _IRREGULAR.get(type(node).__name__)
    return _regular(node) if special is None else special(node, tree)


# --- blocks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block:
    """The statements of a block, and the path to the libcst node whose ``body`` they are."""

    statements: list[ast.stmt]
    path: Path


def blocks(node: ast.AST, tree: Any) -> Iterator[Block]:
    """The blocks that belong to a node. An ``elif`` is no block; a handler and a ``case`` are nodes of their own."""
    if isinstance(node, ast.Module):
        yield Block(node.body, ())
        return
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        if not isinstance(statements, list) or not statements:
            continue
        if field == "body":
            yield Block(statements, (("body", None),))
        elif not isinstance(getattr(tree, field), cst.If):
            yield Block(statements, ((field, None), ("body", None)))


def small_statements(line: cst.CSTNode) -> Sequence[cst.CSTNode]:
    """What stands on one line of a block: the small statements of a simple line, or the one compound statement."""
    if isinstance(line, cst.SimpleStatementLine | cst.SimpleStatementSuite):
        return line.body
    return (line,)


def block_nodes(suite: cst.CSTNode) -> list[cst.CSTNode]:
    """The statements of a block in libcst, one for one those of ast."""
    if isinstance(suite, cst.SimpleStatementSuite):
        return list(suite.body)
    return [small for line in cast(Any, suite).body for small in small_statements(line)]


# --- paths ------------------------------------------------------------------------------------------------------------


def follow(tree: Any, path: Path) -> Any:
    """The node (or, for the bare tuple of a subscript, the sequence) at the end of a path."""
    for field, index in path:
        if field:
            tree = getattr(tree, field)
        if index is not None:
            tree = tree[index]
    return tree


def put(tree: Any, path: Path, new: object) -> Any:
    """``tree`` with another node at the end of a path: only the nodes on the way are copied."""
    if not path:
        return new
    (field, index), rest = path[0], path[1:]
    value = getattr(tree, field) if field else tree
    if index is None:
        return tree.with_changes(**{field: put(value, rest, new)})
    changed = (*value[:index], put(value[index], rest, new), *value[index + 1 :])
    return tree.with_changes(**{field: changed}) if field else changed


class Trees:
    """Both trees of one file, and the way from any ast node to its libcst node.

    The format spec of an f-string is no node of libcst: what stands in it has the ``{…}`` for a parent. Without
    ``expressions`` only statements are to be found, for less.
    """

    def __init__(self, tree: ast.Module, module: cst.Module, *, expressions: bool = True) -> None:
        self.tree = tree
        self.module = module
        self.parents: dict[int, ast.AST] = {}
        self._nodes: dict[int, Any] = {id(tree): module}
        self._children: dict[int, list[Child]] = {}
        self._paths: dict[int, Path] = {}
        stack: list[ast.AST] = [tree]
        while stack:
            parent = stack.pop()
            around = self.parents.get(id(parent))
            spec = getattr(around, "format_spec", None) is parent and isinstance(parent, ast.JoinedStr)
            for child in ast.iter_child_nodes(parent):
                if not expressions and isinstance(child, ast.expr):
                    continue
                self.parents[id(child)] = around if spec and around is not None else parent
                stack.append(child)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around ``node``, from the inside out."""
        parent = self.parents.get(id(node))
        while parent is not None:
            yield parent
            parent = self.parents.get(id(parent))

    def node(self, node: ast.AST) -> Any:
        """The libcst node of an ast node, as it is in the file."""
        missing: list[ast.AST] = []
        current = node
        while id(current) not in self._nodes:
            missing.append(current)
            if id(current) not in self.parents:
                raise KeyError(f"{type(node).__name__} is not a node of this file's tree")
            current = self.parents[id(current)]
        for wanted in [current, *reversed(missing[1:])]:
            if id(wanted) not in self._nodes:
                break
            self.children(wanted)
        if id(node) not in self._nodes:
            raise KeyError(f"{type(node).__name__} has no node of its own in libcst")
        return self._nodes[id(node)]

    def children(self, node: ast.AST) -> list[Child]:
        """The expression children of a node with their paths; its and its blocks' libcst nodes are noted on the way."""
        known = self._children.get(id(node))
        if known is not None:
            return known
        tree = self._nodes.get(id(node))
        if tree is None:
            tree = self.node(node)
        found = list(children(node, tree))
        self._children[id(node)] = found
        for child, path in found:
            self._nodes[id(child)] = follow(tree, path)
            self._paths[id(child)] = path
        for block in blocks(node, tree):
            nodes = block_nodes(follow(tree, block.path))
            _same_length(node, block.statements, nodes)
            self._nodes.update((id(s), n) for s, n in zip(block.statements, nodes, strict=True))
        return found

    def path(self, node: ast.AST) -> Path:
        """The path of an expression from its parent's libcst node."""
        self.node(node)
        return self._paths.get(id(node), ())

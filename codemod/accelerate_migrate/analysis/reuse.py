"""Backward calls that go through a forward which another backward went through already.

DistributedDataParallel averages gradients in the first backward behind a model's forward. A second one without a
forward of that model in between adds gradients that stay each process's own.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from accelerate_migrate.analysis.atoms import Site
from accelerate_migrate.analysis.training import Training

_CUTS = ("detach", "item", "numpy", "tolist", "detach_")
_NO_GRADIENT = ("torch.no_grad", "torch.inference_mode")


def repeated_backwards(training: Training, prepared: frozenset[Site]) -> dict[ast.Call, frozenset[Site]]:
    """The backward calls that add gradients which are not averaged, and the models these are of."""
    by_function: dict[ast.AST, list[ast.Call]] = defaultdict(list)
    for call in training.backwards:
        by_function[training.module.function(call)].append(call)
    found: dict[ast.Call, frozenset[Site]] = {}
    for function, calls in by_function.items():
        for call, models in _Function(training, function, calls, prepared).repeated():
            found[call] = models
    return found


class _Function:
    """One function that runs backward, and what each backward goes through."""

    def __init__(
        self, training: Training, function: ast.AST, backwards: list[ast.Call], prepared: frozenset[Site]
    ) -> None:
        self.training, self.module, self.prepared = training, training.module, prepared
        self.backwards = backwards
        self.forwards: dict[ast.Call, frozenset[Site]] = {}
        self.bindings: dict[str, list[ast.stmt]] = defaultdict(list)
        for node in self.module.walk(function):
            if self.module.function(node) is not function:
                continue
            if isinstance(node, ast.Call):
                models = self._called(node)
                if models and not self._without_gradient(node):
                    self.forwards[node] = models
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.bindings[node.id].append(self.module.statement(node))

    def _called(self, node: ast.Call) -> frozenset[Site]:
        """The prepared models whose forward a call runs, by itself or in the functions of the program that it calls."""
        own = self.training.forwards(node) & self.prepared
        if own or node in self.backwards:
            return own
        found: set[Site] = set()
        for callee in self.training.store.calls.get(node, ()):
            for inner in self.training.reached(list(getattr(callee, "body", [])) if _is_def(callee) else [callee]):
                found |= self.training.forwards(inner) & self.prepared
        return frozenset(found)

    def _without_gradient(self, node: ast.AST) -> bool:
        return any(
            isinstance(around, (ast.With, ast.AsyncWith))
            and any(
                not self.training.library_names(item.context_expr.func).isdisjoint(_NO_GRADIENT)
                for item in around.items
                if isinstance(item.context_expr, ast.Call)
            )
            for around in self.module.ancestors(node)
        )

    def repeated(self) -> Iterator[tuple[ast.Call, frozenset[Site]]]:
        """Each backward that needs a forward of its own and has none, with the models concerned."""
        flows = {call: self._flow(call) for call in self.backwards}
        for call, through in flows.items():
            if not through:
                continue
            models = {
                model
                for model in frozenset().union(*(self.forwards[forward] for forward in through))
                if self._stale_in_a_loop(call, model, through) or self._stale(call, model, flows)
            }
            if models:
                yield call, frozenset(models)

    def _stale(self, call: ast.Call, model: Site, flows: dict[ast.Call, set[ast.Call]]) -> bool:
        """Whether an earlier backward of this model has had no forward of it behind it."""
        for other, through in flows.items():
            if other is call or _done(other) >= _done(call) or self._exclusive(other, call):
                continue
            if not any(model in self.forwards[forward] for forward in through):
                continue
            if self.module.loop_around(other) is not self.module.loop_around(call):
                continue
            between = (
                forward
                for forward, models in self.forwards.items()
                if model in models and _done(other) < _done(forward) < _done(call)
            )
            if not any(between):
                return True
        return False

    def _stale_in_a_loop(self, call: ast.Call, model: Site, through: set[ast.Call]) -> bool:
        """Whether each round of a loop runs this backward through a forward ahead of the loop."""
        loop = self.module.loop_around(call)
        if loop is None:
            return False
        inside = [f for f, models in self.forwards.items() if model in models and loop in self.module.ancestors(f)]
        return not inside and not any(isinstance(n, ast.Break) for n in ast.walk(loop))

    def _exclusive(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether two nodes stand in different branches of one ``if``."""
        mine, theirs = [one, *self.module.ancestors(one)], [other, *self.module.ancestors(other)]
        for around in mine:
            if isinstance(around, ast.If) and around in theirs:
                branches = [{n for n in chain if n in around.body} for chain in (mine, theirs)]
                if bool(branches[0]) != bool(branches[1]):
                    return True
        return self._leaves(one, set(theirs))

    def _leaves(self, node: ast.AST, theirs: set[ast.AST]) -> bool:
        """Whether a branch around a node, in which another one is not, surely ends the round or the function."""
        inside = node
        for around in self.module.ancestors(node):
            if isinstance(around, ast.If) and around not in theirs:
                branch = around.body if inside in around.body else around.orelse
                if inside in branch and isinstance(branch[-1], (ast.Continue, ast.Break, ast.Return, ast.Raise)):
                    return True
            elif isinstance(around, (ast.For, ast.While)):
                return False
            inside = around
        return False

    # ---- what a loss was computed from

    def _flow(self, call: ast.Call) -> set[ast.Call]:
        """The forwards whose graph a backward runs through."""
        loss = call.func.value if isinstance(call.func, ast.Attribute) else call.args[0]  # a scaler that is called
        found: set[ast.Call] = set()
        seen: set[ast.stmt] = set()
        queue: list[tuple[ast.expr, ast.AST]] = [(loss, call)]
        while queue:
            expression, near = queue.pop()
            for node in _with_gradient(expression):
                if isinstance(node, ast.Call) and node in self.forwards:
                    found.add(node)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    for statement in self._reaching(node.id, near):
                        value = getattr(statement, "value", None)
                        if statement not in seen and value is not None and not self._without_gradient(statement):
                            seen.add(statement)
                            queue.append((value, statement))
        return found

    def _reaching(self, name: str, near: ast.AST) -> Iterator[ast.stmt]:
        """The statements ahead of ``near`` that may have bound a name, up to one that surely has."""
        around = {near, *self.module.ancestors(near)}
        for statement in sorted(set(self.bindings[name]), key=lambda s: s.lineno, reverse=True):
            if statement.lineno >= self.module.statement(near).lineno:
                continue
            yield statement
            certain = any(other in around for other in self.module.block(statement))
            if certain and not isinstance(statement, ast.AugAssign):
                return


def _is_def(node: ast.AST) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


def _done(node: ast.expr) -> tuple[int, int]:
    """Where an expression ends: calls run in this order."""
    return node.end_lineno or 0, node.end_col_offset or 0


def _with_gradient(expression: ast.expr) -> Iterator[ast.AST]:
    """The parts of an expression that its gradient reaches: not what is detached."""
    stack: list[ast.AST] = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Attribute) and node.attr in ("data", *_CUTS):
            continue
        yield node
        stack += ast.iter_child_nodes(node)

"""Loops that measure a model: what must be gathered so that every process gets the numbers of one (promise P2).

An evaluation loop over a sharded loader sees a part of the samples. If everything it adds up is computed, after its
last model call, from tensors with one row a sample, gathering those rows once makes the rest of the loop run on the
global batch, the same on every process. Where that cannot be shown, the loader stays whole on every process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from accelerate_migrate.analysis import library
from accelerate_migrate.analysis.accumulation import additions, is_divided_by_samples
from accelerate_migrate.analysis.atoms import Library, Number, Origin, Reduction, Role, Sequence_, Site, Tensor
from accelerate_migrate.analysis.outputs import NotGatherable, Outputs, fresh_name
from accelerate_migrate.analysis.passes import leaves_batches_out
from accelerate_migrate.analysis.peeks import is_peek
from accelerate_migrate.analysis.scopes import assigned_targets
from accelerate_migrate.analysis.training import LoaderLoop, Training
from accelerate_migrate.analysis.values import ANY, Value, flatten

_EXACT = {Reduction.SUM, Reduction.COUNT, Reduction.ROWS}
_LINES = frozenset(
    ["builtins.print", "tqdm.tqdm.write"]
    + [f"{owner}.{method}" for owner in ("logging", "loguru.logger") for method in library.LOGGING_METHODS]
)
_QUIET_METHODS = frozenset(
    [
        "append",
        "extend",
        "update",
        "add",
        "add_batch",
        "next",
        "finish",
        "refresh",
        "set_description",
        "set_postfix",
        "set_postfix_str",
        "step",
        "reset",
        "insert",
    ]
)


@dataclass(frozen=True, eq=False)
class Gather:
    """Gather ``names`` after the statement ``after``; read batch sizes off gathered rows (``sizes``: node, name).

    Where that statement computes with the model's output itself, the call of the model is ``lifted`` out of it under
    the first of the names, and they are gathered in front of it.
    """

    loop: LoaderLoop
    after: ast.stmt
    names: tuple[str, ...]
    sizes: tuple[tuple[ast.Name, str], ...]
    on_host: tuple[str, ...] = ()  # names that the loop brought to the CPU
    lifted: ast.Call | None = None


@dataclass(eq=False)
class Evaluations:
    """The decisions for all evaluation loops of a module."""

    gathers: list[Gather] = field(default_factory=list)
    whole: dict[Site, str] = field(default_factory=dict)  # loaders that stay whole on every process, and why
    doubtful: list[tuple[LoaderLoop, str]] = field(default_factory=list)  # over a loader that is trained on


def decide(training: Training, apart: Mapping[Site, str] | None = None) -> Evaluations:
    """Look at every loop over a loader that does not train; those ``apart`` stay whole for the reason given."""
    result = Evaluations(whole=dict(apart or {}))
    trained = training.loaders_trained_on
    measured = [loop for loop in training.loops if not loop.trains and not _feeds_training(training, loop, trained)]
    measured = [loop for loop in measured if not is_peek(training, loop.node)]
    plans: list[tuple[LoaderLoop, Gather | str]] = []
    for loop in measured:
        try:
            plans.append((loop, _Loop(training, loop).gather()))
        except NotGatherable as problem:
            plans.append((loop, str(problem)))
    changed = True
    while changed:
        changed = False
        for loop, plan in plans:
            reason = plan if isinstance(plan, str) else None
            reason = reason or next((result.whole[s] for s in loop.loaders if s in result.whole), None)
            for site in loop.loaders - trained if reason else ():
                if site not in result.whole:
                    result.whole[site] = reason or ""
                    changed = True
    for loop, plan in plans:
        if any(s in result.whole for s in loop.loaders):
            if loop.loaders & trained:
                result.doubtful.append((loop, "it is used for loaders that are trained on and for others"))
        elif isinstance(plan, Gather):
            result.gathers.append(plan)
        else:
            result.doubtful.append((loop, plan))
    return result


def _feeds_training(training: Training, loop: LoaderLoop, trained: frozenset[Site]) -> bool:
    """Whether a loop draws what is trained on: inside a training loop, or in a generator that hands batches on."""
    if not loop.loaders & trained:
        return False
    return training.in_training_loop(loop.node) or any(isinstance(n, ast.Yield) for n in ast.walk(loop.node))


class _Loop(Outputs):
    """One evaluation loop, split at its last model call."""

    def __init__(self, training: Training, loop: LoaderLoop) -> None:
        super().__init__(training, loop)
        self.tail: list[ast.stmt] = []
        self.lifted: ast.Call | None = None

    def gather(self) -> Gather:
        """What to gather, and where. Raises ``NotGatherable``."""
        if any(self.training.store.details[site].own_collate for site in self.loop.loaders):
            raise NotGatherable("its loader puts batches together by a function of its own")
        if leaves_batches_out(self.module, self.loop.node):
            raise NotGatherable("it leaves batches out")
        cut = self._split(self.loop.node.body)
        if not self.tail:
            raise NotGatherable("nothing is computed from its outputs")
        self._check_statements(self.tail)
        self._check_after_loop()
        names = self._rows()
        sizes = self._sizes(names)
        gathered = tuple(n for n in names if n not in {name.id for name, _ in sizes})
        if not gathered and self.lifted is None:
            raise NotGatherable("no tensor with one row a sample is left behind its last model call")
        self._check_sums()
        brought = {node.id for node in self._tail_names() if self._is_on_host(node)}
        on_host = tuple(n for n in gathered if n in brought)
        if self.lifted is not None:
            gathered = (fresh_name(self.module), *gathered)
        return Gather(self.loop, cut, gathered, tuple(sizes), on_host, self.lifted)

    def _is_on_host(self, node: ast.Name) -> bool:
        return any(a.origin is Origin.FRESH for a in self.value(node).of(Tensor))

    # ---- splitting

    def _split(self, body: list[ast.stmt]) -> ast.stmt:
        calling = [s for s in body if self._calls_model(s)]
        if not calling:
            raise NotGatherable("it calls no model that is known")
        last = calling[-1]
        after = body[body.index(last) + 1 :]
        if isinstance(last, ast.With):
            inner = self._split(last.body)
            self.tail += after
            return inner
        self.tail = [*after]
        plain = isinstance(last, (ast.Assign, ast.AnnAssign))
        if not (plain and self.binds_rows(last)):
            try:
                self.lifted = self.liftable(last)
                self.tail = [last, *after]
            except NotGatherable:
                if not plain:
                    raise
        return last

    def _calls_model(self, statement: ast.stmt) -> bool:
        return any(self.training.forwards(node) for node in self.training.reached([statement]))

    # ---- what the rest of the loop does

    def _check_statements(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                at_positions = any(isinstance(t, ast.Subscript) for t in assigned_targets(statement))
                if at_positions and not isinstance(statement, ast.AugAssign):
                    raise NotGatherable("it writes results at positions of its own")
            elif isinstance(statement, ast.Expr):
                self._check_call(statement.value)
            elif isinstance(statement, ast.If):
                self._check_statements([*statement.body, *statement.orelse])
            elif isinstance(statement, ast.With):
                self._check_statements(statement.body)
            elif isinstance(statement, ast.For):
                self._check_inner_loop(statement)
                self._check_statements(statement.body)
            elif not isinstance(statement, (ast.Pass, ast.Break, ast.Continue, ast.Assert)):
                raise NotGatherable("its body does more than add results up")
            for node in ast.walk(statement):
                self._check_shape(node)

    def _check_call(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant):
            return
        if isinstance(node, ast.Call):
            callee = self.value(node.func)
            if any(isinstance(a, Library) and a.name in _LINES for a in callee) or self._logs(node.func):
                return
            if isinstance(node.func, ast.Attribute) and node.func.attr in _QUIET_METHODS:
                return
            if self.training.store.calls.get(node):
                return
            if any(isinstance(a, Library) and a.name not in library.FILE_WRITERS and "." not in a.name for a in callee):
                return
        raise NotGatherable("it writes or shows something for each batch")

    def _logs(self, callee: ast.expr) -> bool:
        """Whether this is a logger's method."""
        return isinstance(callee, ast.Attribute) and bool(self.value(callee.value).sites(Role.LOGGER))

    def _check_inner_loop(self, node: ast.For) -> None:
        if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) and node.iter.func.id == "range":
            counts = [a for arg in node.iter.args for a in self.value(arg) if isinstance(a, Number)]
            if not any(c.reduction is Reduction.COUNT for c in counts):
                raise NotGatherable("it counts on a batch size of its own")

    def _check_shape(self, node: ast.AST) -> None:
        """``x.view(BATCH_SIZE, -1)`` fits one batch size only."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            return
        if node.func.attr not in ("view", "reshape", "expand", "resize") or not self.is_rows(node.func.value):
            return
        first = node.args[0]
        if isinstance(first, (ast.Constant, ast.UnaryOp, ast.Tuple, ast.Starred)):
            return
        if any(isinstance(a, Number) and a.reduction is Reduction.COUNT for a in self.value(first)):
            return
        if ast.unparse(first).endswith(".shape"):
            return
        raise NotGatherable("it reshapes its outputs to a batch size of its own")

    def _check_after_loop(self) -> None:
        """A batch that is used again behind the loop would be another one."""
        scope = self.module.function(self.loop.node)
        inside = set(self.module.walk(self.loop.node))
        end = self.loop.node.end_lineno or 0
        bound = self._bound_in_loop()
        for node in ast.walk(scope):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Load)
                and node not in inside
                and node.lineno > end
            ):
                if node.id in bound and self.is_rows(node) and not self._in_another_loop(node):
                    raise NotGatherable(f"`{node.id}` of its last batch is used again behind it")

    def _in_another_loop(self, node: ast.Name) -> bool:
        """Whether a loop of its own binds this name anew before it is read."""
        shared = set(self.module.ancestors(self.loop.node))
        for around in self.module.ancestors(node):
            if isinstance(around, (ast.For, ast.AsyncFor)) and around not in shared:
                before = [s for s in around.body if isinstance(s, ast.Assign) and (s.end_lineno or 0) < node.lineno]
                targets = [around.target, *(target for statement in before for target in statement.targets)]
                names = {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
                if node.id in names and not any(n is node for n in ast.walk(around.iter)):
                    return True
        return False

    # ---- what is gathered

    def _bound_in_loop(self) -> set[str]:
        found = set()
        tail = {node for statement in self.tail for node in ast.walk(statement)}
        for node in self.module.walk(self.loop.node):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in tail:
                found.add(node.id)
        return found

    def _tail_names(self) -> Iterator[ast.Name]:
        """Names read behind the cut that were bound before it (a name bound again behind it is its own)."""
        bound = self._bound_in_loop()
        rebound: set[str] = set()
        lifted = set(ast.walk(self.lifted)) if self.lifted is not None else set()
        for statement in self.tail:
            walked = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n not in lifted]
            loads = [n for n in walked if isinstance(n.ctx, ast.Load)]
            yield from (n for n in sorted(loads, key=lambda n: (n.lineno, n.col_offset)) if n.id in bound - rebound)
            rebound |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def _rows(self) -> list[str]:
        names: list[str] = []
        for node in self._tail_names():
            one = self.value(node)
            tensors = [a for a in flatten(one) if isinstance(a, Tensor)]
            if not tensors:
                if one.may_be_unknown():
                    raise NotGatherable(f"it is not clear what `{node.id}` holds")
                continue
            certain = all(t.reduction is Reduction.ROWS for t in tensors) and not ANY.atoms & one.atoms
            if self._is_scalar(node.id) or not (certain or self.shown_to_be_rows(node.id)):
                raise NotGatherable(f"it is not clear that `{node.id}` has one row a sample")
            if not any(t.loaders for t in tensors):
                continue
            if any(t.origin is Origin.ARRAY for t in tensors):
                raise NotGatherable(f"`{node.id}` is an array or a list there, no tensor")
            if node.id not in names:
                names.append(node.id)
        return names

    def _is_scalar(self, name: str) -> bool:
        """Whether the loop asks this name for its one number."""
        stores = [n for s in self.tail for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        if any(n.id == name for n in stores):  # bound anew behind the cut
            return False
        return any(
            isinstance(node, ast.Attribute)
            and node.attr in ("item", "backward")
            and isinstance(node.value, ast.Name)
            and node.value.id == name
            and isinstance(self.module.parents[node], ast.Call)
            for node in self.module.walk(self.loop.node)
        )

    def _sizes(self, names: list[str]) -> list[tuple[ast.Name, str]]:
        """Reads of ``x.size(0)`` that can ask a tensor that is gathered anyway, where ``x`` has no other use."""
        found = []
        uses: dict[str, list[ast.Name]] = {}
        for node in self._tail_names():
            uses.setdefault(node.id, []).append(node)
        only_sized = [n for n in names if all(self._is_size(u) for u in uses[n])]
        others = [n for n in names if n not in only_sized and all(self._is_plain(u) for u in uses[n])]
        if not others:
            return []
        for name in only_sized:
            found += [(node, others[-1]) for node in uses[name]]
        return found

    def _is_size(self, node: ast.Name) -> bool:
        parent = self.module.parents[node]
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "len":
            return True
        if not isinstance(parent, ast.Attribute):
            return False
        around = self.module.parents[parent]
        if parent.attr == "size" and isinstance(around, ast.Call) and around.func is parent:
            return len(around.args) == 1 and isinstance(around.args[0], ast.Constant) and around.args[0].value == 0
        if parent.attr == "shape" and isinstance(around, ast.Subscript):
            return isinstance(around.slice, ast.Constant) and around.slice.value == 0
        return False

    def _is_plain(self, node: ast.Name) -> bool:
        return not any(isinstance(a, Sequence_) for a in self.value(node))

    # ---- what is added up

    def _check_sums(self) -> None:
        """Raise where something other than a sum over samples is added up, and used behind the loop.

        Means of batches weigh the samples of a last batch that is not full otherwise than means of gathered batches.
        """
        for node, added, depends in self._accumulated():
            kinds = {a.reduction for a in added if isinstance(a, (Tensor, Number))}
            if kinds <= _EXACT and not (depends and added.may_be_unknown()):
                continue
            if is_divided_by_samples(self.training, self.loop.node, node):
                raise NotGatherable(f"`{node}` adds up means of batches and is divided by a number of samples")
            if not self._shows_progress_only(node):
                raise NotGatherable(f"`{node}` averages over batches, which other batches would average otherwise")

    def _shows_progress_only(self, accumulator: str) -> bool:
        """Whether a local accumulator is read in the loop alone."""
        scope = self.module.function(self.loop.node)
        inside = set(self.module.walk(self.loop.node))
        if not accumulator.isidentifier() or self._is_shared(accumulator):
            return False
        mentions = [n for n in self.module.walk(scope) if isinstance(n, ast.Name) and n.id == accumulator]
        return all(
            n in inside or (isinstance(n.ctx, ast.Store) and not isinstance(self.module.parents[n], ast.AugAssign))
            for n in mentions
        )

    def _is_shared(self, name: str) -> bool:
        """Whether a function declares this name to be another scope's."""
        return any(isinstance(n, (ast.Global, ast.Nonlocal)) and name in n.names for n in self.module.walk())

    def _accumulated(self) -> Iterator[tuple[str, Value, bool]]:
        """What the loop adds up: the accumulator, the value added, and whether that depends on the batch."""
        of_batch = {node.id for node in self._tail_names() if self.is_rows(node)}
        lifted = set(ast.walk(self.lifted)) if self.lifted is not None else set()
        for statement in self.tail:
            for node in ast.walk(statement):
                if isinstance(node, ast.Assign) and (_reads(node.value, of_batch) or self._holds(node, lifted)):
                    of_batch |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
                for accumulator, added in additions(self.training, node):
                    depends = _reads(added, of_batch) or self._holds(added, lifted)
                    yield ast.unparse(accumulator), self.value(added), depends

    def _holds(self, node: ast.AST, others: set[ast.AST]) -> bool:
        return bool(others) and not others.isdisjoint(self.module.walk(node))


def _reads(node: ast.expr, names: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node))

"""What a loop takes for one row a sample, and where a model's output is computed with on the spot."""

from __future__ import annotations

import ast

from accelerate_migrate.analysis.atoms import Library, Reduction, Role, Tensor
from accelerate_migrate.analysis.modules import Tree
from accelerate_migrate.analysis.scopes import assigned_targets
from accelerate_migrate.analysis.training import LoaderLoop, Training
from accelerate_migrate.analysis.values import ANY, Value, flatten


class NotGatherable(Exception):
    """Why an evaluation loop cannot run on gathered rows, in a few words for a finding."""


class Outputs:
    """The outputs of the models that one loop over a loader calls."""

    def __init__(self, training: Training, loop: LoaderLoop) -> None:
        self.training = training
        self.module = training.module
        self.loop = loop

    def value(self, node: ast.AST) -> Value:
        """What an expression may be."""
        return self.training.value(node)

    def is_rows(self, node: ast.AST) -> bool:
        """Whether an expression may hold rows that were computed from a loader's."""
        return any(
            isinstance(a, Tensor) and a.reduction is Reduction.ROWS and a.loaders for a in flatten(self.value(node))
        )

    def shown_to_be_rows(self, name: str) -> bool:
        """Whether the loop takes this name for one row a sample: in a torch loss, or asking each row's best class."""
        for node in self.module.walk(self.loop.node):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            first = ast.unparse(node.args[0])
            callee = self.value(node.func)
            named = [a.name for a in callee if isinstance(a, Library)]
            if first in (name, f"{name}.data") and (
                callee.sites(Role.LOSS) or any("loss" in n or "cross_entropy" in n for n in named)
            ):
                return True
            ranked = any(n in ("torch.max", "torch.argmax", "torch.topk") for n in named)
            if ranked and first in (name, f"{name}.data") and len(node.args) + len(node.keywords) > 1:
                return True
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("max", "argmax", "topk"):
                if ast.unparse(node.func.value) in (name, f"{name}.data"):
                    return True
        return False

    def binds_rows(self, statement: ast.stmt) -> bool:
        """Whether an assignment binds what the model returned, or rows made of it, to a name."""
        assert isinstance(statement, (ast.Assign, ast.AnnAssign))
        assert statement.value is not None
        tensors = [a for a in flatten(self.value(statement.value)) if isinstance(a, Tensor)]
        if self.training.forwards(statement.value) or (tensors and all(t.reduction is Reduction.ROWS for t in tensors)):
            return True
        names = [t.id for t in assigned_targets(statement) if isinstance(t, ast.Name)]
        return any(self.shown_to_be_rows(name) for name in names)

    def _liftable_calls(self, statement: ast.stmt) -> list[ast.Call]:
        """The calls of a model that stand in a simple statement, inside of something else."""
        if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)):
            return []
        return [n for n in ast.walk(statement) if isinstance(n, ast.Call) and self.training.forwards(n)]

    def liftable(self, statement: ast.stmt) -> ast.Call:
        """The one call of a model in a statement, which may as well run in front of it."""
        calls = self._liftable_calls(statement)
        if len(calls) != 1 or not _runs_anyway(self.module, calls[0]):
            raise NotGatherable("its last model call is not a plain assignment")
        call = calls[0]
        inside = set(ast.walk(call)).union(self.module.ancestors(call))
        if any(node not in inside and self._calls_model_in(node) for node in ast.walk(statement)):
            raise NotGatherable("its last model call is not a plain assignment")
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            raise NotGatherable("its last model call is not a plain assignment")
        if not self._certainly_gives_rows(call) and not self.shown_to_be_rows(ast.unparse(call)):
            raise NotGatherable("it is not clear that its outputs have one row a sample")
        return call

    def _certainly_gives_rows(self, call: ast.Call) -> bool:
        one = self.value(call)
        tensors = [a for a in flatten(one) if isinstance(a, Tensor)]
        if not tensors or ANY.atoms & one.atoms or any(t.reduction is not Reduction.ROWS for t in tensors):
            return False
        forwards = [self.training.store.details[site].class_def for site in self.training.forwards(call)]
        if all(known is None or known.module.editable for known in forwards):
            return True
        around = self.module.parents[call]  # a model of another file may return its loss
        return not isinstance(around, ast.Attribute) or around.attr not in ("item", "mean", "sum", "backward", "data")

    def _calls_model_in(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and any(self.training.forwards(n) for n in self.training.reached([node]))


def _runs_anyway(module: Tree, call: ast.Call) -> bool:
    """Whether a call runs whenever its statement does, once: it is in no branch, comprehension or lambda of it."""
    conditional = (ast.IfExp, ast.BoolOp, ast.comprehension, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
                   ast.GeneratorExp)  # fmt: skip
    for around in module.ancestors(call):
        if isinstance(around, ast.stmt):
            return True
        if isinstance(around, conditional):
            return False
    return False


def fresh_name(module: Tree) -> str:
    """A name for a model's output that the file does not use."""
    used = {n.id for n in module.walk() if isinstance(n, ast.Name)}
    used |= {n.arg for n in module.walk() if isinstance(n, ast.arg)}
    return next(name for name in ("output", "outputs", "predicted", "model_output") if name not in used)

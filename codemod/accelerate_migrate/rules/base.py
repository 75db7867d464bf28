"""What a rule is, and what it sees and says while it looks at one module."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from accelerate_migrate.analysis.library import AVAILABLE
from accelerate_migrate.analysis.modules import Module
from accelerate_migrate.analysis.nearby import device_at_hand, device_of_parameters
from accelerate_migrate.analysis.placement import Creation
from accelerate_migrate.analysis.plan import Plan
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.edits import AddImport, Delete, Edit, EditConflict, Replace, ReplaceStatement, Wrap
from accelerate_migrate.findings import Finding, Options, Severity

_ASKING = AVAILABLE | {"torch.cuda.device_count", "builtins.len", "builtins.isinstance", "builtins.hasattr"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of rewrite. ``order`` decides when it looks: a rule that removes code goes before those that change it.

    An ``essential`` rule takes part whenever the file changes at all: without it the others would be wrong.
    ``remaining`` gives the places of a file migrated before on which a person has not acted yet, and why they must.
    """

    code: str
    name: str
    summary: str
    why: str
    before: str
    after: str
    safety: str
    apply: Callable[[Context], None]
    order: int = 50
    essential: bool = False
    remaining: Callable[[Training], Iterable[tuple[ast.AST, str]]] | None = None

    def explain(self) -> str:
        """The rule's page, as Markdown."""
        return (
            f"# {self.code} {self.name}\n\n{self.summary}\n\n## Why\n\n{self.why.strip()}\n\n"
            f"## Before\n\n```python\n{self.before.strip()}\n```\n\n"
            f"## After\n\n```python\n{self.after.strip()}\n```\n\n"
            f"## How safe it is\n\n{self.safety.strip()}\n"
        )


@dataclass(eq=False)
class Context:
    """One module's facts, and the edits and findings that the rules have made so far."""

    plan: Plan
    options: Options
    skipped_lines: Mapping[Module, frozenset[int]] = field(default_factory=dict)
    edits: list[Edit] = field(default_factory=list)
    gone: set[ast.AST] = field(default_factory=set)  # roots of what will not be there any more
    guards: set[ast.stmt] = field(default_factory=set)  # the script's own: what they hold, the main process runs alone
    unscaling: set[ast.Call] = field(default_factory=set)  # clipping that takes the loss scale out of gradients first
    constructor: dict[tuple[Creation, str], str] = field(default_factory=dict)  # arguments that Accelerator(...) needs
    handlers: dict[Creation, dict[str, dict[str, str]]] = field(default_factory=dict)  # classes, and their arguments
    reads: frozenset[str] = frozenset()  # the sources of the names and attributes in these arguments
    ready: dict[Creation, int] = field(default_factory=dict)  # the line behind which the names in these are bound
    imports: dict[Creation, set[str]] = field(default_factory=dict)  # further names to import from the target package
    after_creation: dict[Creation, list[str]] = field(default_factory=dict)  # statements right behind a creation
    after_prepare: dict[ast.stmt, list[str]] = field(default_factory=dict)  # ... and behind the `prepare` at an anchor
    _found: dict[Module, list[Finding]] = field(default_factory=dict)
    _rule: Rule | None = None

    def run(self, rule: Rule) -> None:
        """Let one rule look at the module."""
        self._rule = rule
        rule.apply(self)
        self._rule = None

    # ---- asking

    def parent(self, node: ast.AST) -> ast.AST:
        """The node around this one."""
        return self.plan.module.parents[node]

    def is_gone(self, node: ast.AST) -> bool:
        """Whether a node will not be there any more, by what rules asked for so far."""
        return node in self.gone or any(a in self.gone for a in self.plan.module.ancestors(node))

    def in_own_guard(self, node: ast.AST) -> bool:
        """Whether a guard of the script's own lets the main process alone run a node."""
        return any(around in self.guards for around in (node, *self.plan.module.ancestors(node)))

    def may_change(self, node: ast.AST) -> bool:
        """Whether a rule may act on this node: it stays, and no comment says to skip its lines."""
        line, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
        if self.is_gone(node):
            return False
        module = self.plan.module.module_of(node)
        skipped = self.skipped_lines.get(module) if module is not None else frozenset[int]()
        return not skipped or not skipped.intersection(range(line, (end or line) + 1))

    def has_accelerator(self, node: ast.AST) -> bool:
        """Whether the accelerator can be named at this node."""
        return self.plan.placement.available(node)

    def accelerator(self, node: ast.AST) -> str:
        """The accelerator's name at this node, which then needs it."""
        return self.plan.placement.use(node)

    def device(self, node: ast.AST) -> str:
        """The source of the device at this node."""
        return f"{self.accelerator(node)}.device"

    def findings_of(self, module: Module) -> tuple[Finding, ...]:
        """What was said about a file, in the order of its lines, each thing once."""
        found = dict.fromkeys(self._found.get(module, ()))
        return tuple(sorted(found, key=lambda f: (f.line, f.column, f.code)))

    def device_here(self, node: ast.expr | ast.stmt) -> str | None:
        """The source of the device at this node, or ``None`` where nothing there knows it.

        In a helper or a module of layers it is that of a tensor at hand, which needs no accelerator.
        """
        if self._is_helper(self.plan.module.function(node)):
            module, value = self.plan.module, self.plan.value
            near = device_at_hand(module, value, node, trusting=not self.has_accelerator(node))
            near = near or device_of_parameters(module, value, node)
            if near is not None:
                return near
        return self.device(node) if self.has_accelerator(node) else None

    def _is_helper(self, function: ast.AST) -> bool:
        """Whether a function needs no accelerator by itself: it does not set up, train or draw from a loader."""
        plan = self.plan
        if isinstance(function, ast.Module) or any(function is c.scope for c in plan.placement.creations):
            return False
        own = {*plan.training.backwards, *(loop.node for loop in plan.training.loops)}
        return function not in plan.placement.device_parameters and own.isdisjoint(plan.module.walk(function))

    # ---- acting

    def edit(self, edit: Edit) -> None:
        """Ask for an edit."""
        self.edits.append(edit)

    def replace(self, node: ast.expr, template: str, *holes: ast.expr) -> None:
        """Put an expression in another's place; what is in no hole is gone."""
        self.edit(Replace(node, template, holes))
        kept = {n for hole in holes for n in ast.walk(hole)}
        above = {a for hole in holes for a in self.plan.module.ancestors(hole)}
        for inner in self.plan.module.walk(node):
            if inner is not node and inner not in kept and inner not in above:
                self.gone.add(inner)

    def replace_statement(self, statement: ast.stmt, text: str) -> None:
        """Put other statements in a statement's place; nothing of it is left."""
        self.edit(ReplaceStatement(statement, text))
        self.gone.add(statement)

    def delete(self, statement: ast.stmt) -> None:
        """Remove a statement."""
        if statement not in self.gone:
            self.edit(Delete(statement))
            self.gone.add(statement)

    def delete_emptying(self, statement: ast.stmt) -> None:
        """Remove a statement, and the ``if`` around it that is left with nothing in it."""
        around = self.parent(statement)
        while (
            isinstance(around, ast.If)
            and all(s is statement or self.is_gone(s) for s in (*around.body, *around.orelse))
            and not any(isinstance(n, (ast.Await, ast.NamedExpr)) for n in ast.walk(around.test))
            and all(self.asks_only(n) for n in ast.walk(around.test) if isinstance(n, ast.Call))
            and self.may_change(around.test)
        ):
            self.edits = [
                e for e in self.edits if not (isinstance(e, Delete) and e.node in (*around.body, *around.orelse))
            ]
            statement, around = around, self.parent(around)
        self.delete(statement)

    def asks_only(self, call: ast.Call) -> bool:
        """Whether a call is known to only ask: ``torch.cuda.is_available()``, ``len(ids)``."""
        names = self.plan.training.library_names(call.func)
        return bool(names) and names <= _ASKING

    def guard(self, statement: ast.stmt) -> None:
        """Let only the main process run a statement."""
        if self.in_own_guard(statement):
            return
        self.edit(Wrap((statement,), f"if {self.accelerator(statement)}.is_main_process:"))

    def import_here(self, name: str, node: ast.AST) -> None:
        """Import a name of the target package in the file that holds this node."""
        self.edit(AddImport(self.options.target.module, name, self.plan.module.root(node)))

    def handle_with(self, creation: Creation, handler: str, settings: Mapping[str, str]) -> None:
        """Give settings (their sources) to the object of class ``handler`` in an accelerator's ``kwargs_handlers``."""
        handlers = self.handlers.setdefault(creation, {})
        handlers.setdefault(handler, {}).update(settings)
        made = (f"{name}({', '.join(f'{k}={v}' for k, v in given.items())})" for name, given in handlers.items())
        self.constructor[creation, "kwargs_handlers"] = f"[{', '.join(made)}]"
        self.imports.setdefault(creation, set()).add(handler)

    def construct_with(self, argument: str, text: str, needs: str, at: ast.AST | None = None) -> None:
        """Give the accelerator's creation an argument, for which the name ``needs`` is imported from its package.

        ``at`` is a node that this accelerator reaches; without it, every accelerator gets the argument. Raises
        ``EditConflict`` where another rule gave the same argument another value.
        """
        for creation in self.plan.placement.creations:
            if at is None or creation.leading_to(at):
                known = self.constructor.setdefault((creation, argument), text)
                if known != text:
                    raise EditConflict(f"the accelerator's `{argument}` is given twice: {known} and {text}")
                self.imports.setdefault(creation, set()).add(needs)

    def report(self, node: ast.AST, severity: Severity, message: str) -> None:
        """Say something about a place."""
        assert self._rule is not None
        line = getattr(node, "lineno", 1)
        module = self.plan.module.module_of(node)
        assert module is not None
        self._found.setdefault(module, []).append(
            Finding(
                self._rule.code,
                self._rule.name,
                severity,
                line,
                self.plan.module.column(node),
                getattr(node, "end_lineno", None) or line,
                message,
            )
        )

    def migrated(self, node: ast.AST, message: str) -> None:
        """Say that a place was changed and the promises hold."""
        self.report(node, Severity.MIGRATED, message)

    def review(self, node: ast.AST, message: str) -> None:
        """Say that a place was changed, and what to look at on several processes."""
        self.report(node, Severity.REVIEW, message)

    def manual(self, node: ast.AST, message: str) -> None:
        """Say that a person must act here."""
        self.report(node, Severity.MANUAL, message)

    def note(self, node: ast.AST, message: str) -> None:
        """Say something worth knowing."""
        self.report(node, Severity.NOTE, message)


def short(node: ast.AST, limit: int = 60) -> str:
    """An expression's source for a message, cut where it is long."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"

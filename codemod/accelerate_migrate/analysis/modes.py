"""What an autocast or a scaler says, as the argument ``mixed_precision=`` of the accelerator."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from accelerate_migrate.analysis.atoms import Library
from accelerate_migrate.analysis.devices import negated
from accelerate_migrate.analysis.flags import is_about_device, lifted, only_assignment, opposite
from accelerate_migrate.analysis.placement import Creation
from accelerate_migrate.analysis.training import Training
from accelerate_migrate.analysis.unclear import Unclear

DTYPES: Mapping[str, str] = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float32": "no", "float": "no"}
_SCALING = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")
Guards = list[tuple[ast.expr, bool]]


@dataclass(frozen=True)
class Mode:
    """A source for ``mixed_precision=``: ``type`` where CUDA is (or everywhere), under the script's own conditions."""

    node: ast.Call
    text: str
    type: str  # "fp16", "bf16", or the source of an expression where the script chooses
    conditions: tuple[str, ...]
    chosen_type: bool = False

    @property
    def reads(self) -> frozenset[str]:
        """The sources of the names and attributes that the argument reads."""
        return sources_read(self.text)


@dataclass(frozen=True)
class Setting:
    """What a mode is read against: the training, the accelerator's place, and what a question for a scaler asks."""

    training: Training
    creation: Creation
    asks_for_scaler: Callable[[ast.expr], bool]
    scaler_guards: Guards  # the conditions under which the script makes its scaler


def sources_read(text: str) -> frozenset[str]:
    """The sources of the names and attributes in an expression."""
    return frozenset(ast.unparse(n) for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.Name, ast.Attribute)))


def argument(call: ast.Call, index: int, name: str) -> ast.expr | None:
    """An argument of a call, by position or name."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[index] if index < len(call.args) else None


def enabled_of_autocast(training: Training, call: ast.Call) -> ast.expr | None:
    """The argument ``enabled`` of an autocast, if it has one."""
    return argument(call, 0 if "torch.cuda.amp.autocast" in training.library_names(call.func) else 2, "enabled")


def mode_of_autocast(setting: Setting, call: ast.Call, guards: Guards) -> Mode:
    """The mode of one autocast. Raises ``Unclear`` where it depends on what the accelerator's place cannot know."""
    old = "torch.cuda.amp.autocast" in setting.training.library_names(call.func)
    enabled = enabled_of_autocast(setting.training, call)
    kind = "cuda" if old else _kind(setting.training, argument(call, 0, "device_type"))
    if argument(call, 2 if old else 3, "cache_enabled") is not None:
        raise Unclear("autocast with `cache_enabled` has no counterpart", call)
    tests = [*guards, *([(enabled, True)] if enabled is not None else [])]
    conditions, on_device = _conditions(setting, tests, call)
    dtype = argument(call, 1, "dtype")
    cuda_only = kind == "cuda" or on_device
    chosen, source = False, "'fp16'"
    if dtype is not None and not (isinstance(dtype, ast.Constant) and dtype.value is None):
        chosen, source = _type(setting, dtype, call)
        if kind != "cuda" and source == "'fp16'" and not on_device:
            cuda_only = False
    elif not cuda_only:
        source = f"'fp16' if {_on_cuda(setting, call)} else 'bf16'"
    return _mode(setting, call, source, conditions, cuda_only, chosen=chosen)


def mode_of_scaler(setting: Setting, call: ast.Call, guards: Guards) -> Mode:
    """The mode of a script that scales its loss and leaves autocast to its model."""
    old = "torch.cuda.amp.GradScaler" in setting.training.library_names(call.func)
    enabled = argument(call, 4 if old else 5, "enabled")
    tests = [*guards, *([(enabled, True)] if enabled is not None else [])]
    conditions, _ = _conditions(setting, tests, call)
    return _mode(setting, call, "'fp16'", conditions, cuda_only=True)


def scaling_arguments(setting: Setting, call: ast.Call) -> tuple[tuple[str, str], ...]:
    """What a GradScaler is told beside its defaults: names, and their sources where the accelerator is made."""
    first = 0 if "torch.cuda.amp.GradScaler" in setting.training.library_names(call.func) else 1
    given = []
    for index, name in enumerate(_SCALING):
        one = argument(call, first + index, name)
        if one is not None:
            source = lifted(setting.training, one, setting.creation.scope)
            if source is None:
                raise Unclear(f"the scaler's `{name}` is not known where the accelerator is made", call)
            given.append((name, ast.unparse(source)))
    return tuple(given)


def mode_of_apex(setting: Setting, call: ast.Call, guards: Guards) -> Mode:
    """The mode of ``amp.initialize(..., opt_level=...)``: fp16 for every level but O0."""
    enabled = argument(call, 2, "enabled")
    tests = [*guards, *([(enabled, True)] if enabled is not None else [])]
    conditions, _ = _conditions(setting, tests, call)
    level = argument(call, 3, "opt_level")
    if level is not None and not isinstance(level, ast.Constant):
        source = lifted(setting.training, level, setting.creation.scope)
        if source is None:
            raise Unclear("apex's opt_level is not known where the accelerator is made", call)
        conditions = (*conditions, f"{_operand(source)} != 'O0'")
    elif isinstance(level, ast.Constant) and level.value == "O0":
        return Mode(call, '"no"', "no", conditions)
    return _mode(setting, call, "'fp16'", conditions, cuda_only=True)


def _mode(
    setting: Setting,
    call: ast.Call,
    source: str,
    conditions: tuple[str, ...],
    cuda_only: bool,
    *,
    chosen: bool = False,
) -> Mode:
    """Put a type under its conditions. CUDA's autocast does nothing elsewhere, so ``fp16`` is asked for where it is."""
    tests = list(conditions)
    if setting.creation.cpu == "True" and cuda_only:
        source, tests = "'no'", []
    elif cuda_only:
        tests.append(_on_cuda(setting, call))
    text = source
    if tests:
        compound = isinstance(ast.parse(source, mode="eval").body, ast.IfExp)
        text = f"{f'({source})' if compound else source} if {' and '.join(tests)} else 'no'"
    return Mode(call, _quoted(text), source.strip("'"), conditions, chosen)


def _on_cuda(setting: Setting, call: ast.Call) -> str:
    """The source of the condition that the script runs on CUDA."""
    torch = next(
        (
            n.id
            for n in setting.training.module.walk()
            if isinstance(n, ast.Name) and Library("torch") in setting.training.value(n).atoms
        ),
        None,
    )
    if torch is None:
        raise Unclear("torch has no name in this file, which the choice of a precision needs", call)
    available = f"{torch}.cuda.is_available()"
    if setting.creation.cpu is None or setting.creation.cpu == "True":
        return available
    return f"{available} and {_operand(ast.parse(negated(setting.creation.cpu), mode='eval').body)}"


def _conditions(setting: Setting, tests: Guards, call: ast.Call) -> tuple[tuple[str, ...], bool]:
    """The script's own conditions, as the accelerator's place has them, and whether one of the tests was for CUDA."""
    found: list[str] = []
    on_device = False
    queue = list(tests)
    while queue:
        test, holds = queue.pop(0)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            queue.insert(0, (test.operand, not holds))
        elif holds and setting.asks_for_scaler(test) and not isinstance(getattr(test, "ops", [None])[0], ast.Is):
            queue[:0] = setting.scaler_guards
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and holds:
            queue[:0] = [(part, True) for part in test.values]
        elif isinstance(test, ast.Constant) and bool(test.value) is holds:
            continue
        elif is_about_device(setting.training, test if holds else opposite(test)):
            on_device = True
        else:
            source = lifted(setting.training, test, setting.creation.scope)
            if source is None:
                raise Unclear(
                    f"mixed precision depends on `{ast.unparse(test)}`, which is not known where the accelerator is "
                    "made",
                    call,
                )
            text = _operand(source if holds else opposite(source))
            if text not in found:
                found.append(text)
    return tuple(found), on_device


def _type(setting: Setting, dtype: ast.expr, call: ast.Call) -> tuple[bool, str]:
    """Whether the script chooses its dtype, and the mode or the expression that makes the choice."""
    made = only_assignment(setting.training, dtype)
    source = lifted(setting.training, made if made is not None else dtype, setting.creation.scope)
    if source is not None and not isinstance(source, ast.Attribute):  # the script chooses, and goes on choosing
        modes = _AsModes()
        expression = modes.visit(copy.deepcopy(source))
        if modes.found and not modes.other:
            return True, ast.unparse(expression)
    known = {a.name.rsplit(".", 1)[-1] for a in setting.training.value(dtype).of(Library)}
    if len(known) == 1 and setting.training.value(dtype).only(Library) and known <= set(DTYPES):
        return False, f"'{DTYPES[known.pop()]}'"
    raise Unclear(f"the dtype of autocast, `{ast.unparse(dtype)}`, has no counterpart in mixed_precision", call)


class _AsModes(ast.NodeTransformer):
    """Turns ``torch.float16`` into ``"fp16"``, wherever it stands in an expression that chooses between dtypes."""

    def __init__(self) -> None:
        self.found = False
        self.other = False

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.attr in DTYPES:
            self.found = True
            return ast.Constant(DTYPES[node.attr])
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        self.other |= node.id == "torch"
        return node


def _kind(training: Training, device: ast.expr | None) -> str:
    """``"cuda"`` for an autocast of CUDA, ``""`` for one of whatever device the script is on."""
    if device is None:
        return "cuda"
    spelled = training.value(device).const()
    return "cuda" if isinstance(spelled, str) and spelled.startswith("cuda") else ""


def _operand(node: ast.expr) -> str:
    """A condition's source, as it can stand beside ``and``."""
    text = ast.unparse(node)
    loose = isinstance(node, (ast.IfExp, ast.Lambda)) or (isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or))
    return f"({text})" if loose else text


def _quoted(text: str) -> str:
    return text if '"' in text else text.replace("'", '"')

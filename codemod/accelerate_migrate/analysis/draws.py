"""Whether every process that runs a program computes the same: what it imports is known, what it draws is seeded.

Said only where it is certain. A file that is not known, a data loader, or an unseeded draw outside a model's methods
may give each process other data.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator

from accelerate_migrate.analysis.atoms import FunctionRef
from accelerate_migrate.analysis.modules import Files, is_main_block
from accelerate_migrate.analysis.training import Training

_KNOWN = sys.stdlib_module_names | {
    *("PIL", "cv2", "einops", "graphviz", "h5py", "imageio", "matplotlib", "numpy", "pandas", "requests", "scipy"),
    *("seaborn", "soundfile", "tensorboardX", "torch", "torchvision", "tqdm", "unidecode", "visdom", "yaml"),
}
_DRAWS = re.compile(
    r"s?rand|shuffle$|sample|rsample|choices?$|permut|(log_?)?normal(_|variate)?$|uniform|multinomial|bernoulli|poisson"
    r"|gauss|exponential|beta|gamma|standard_|trunc_normal|default_rng|getrandbits|urandom|uuid|token_|laplace|binomial"
    r"|dirichlet|Generator$",
    re.IGNORECASE,
)
_LOADERS = re.compile(r"DataLoader|BucketIterator|BPTTIterator|Sampler|Rand(om)?[A-Z]|Jitter|Augment|random_split")
_OF_THE_MODEL = {"__init__", "forward", "reset_parameters", "init_weights", "_init_weights"}
_UNSURE = (ast.If, ast.For, ast.While, ast.IfExp, ast.Try)
_SEEDS = {"torch.manual_seed": "torch", "numpy.random.seed": "numpy", "random.seed": "random"}


def is_same_everywhere(training: Training, backward: ast.Call) -> bool:
    """Whether the data that this backward learns from is certainly the same on every process."""
    files = training.module
    scopes = training.callers_of(files.function(backward))
    if not all(_is_called_here(training, scope) for scope in scopes):
        return False  # called from elsewhere, with who knows what
    nodes = list(files.everywhere())
    if any(_is_unknown_import(node, files) for node in nodes):
        return False
    if any(_LOADERS.search(name) for node in nodes for name in _names(node)):
        return False
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    seeds = [(call, family) for call in calls if (family := _seeded(training, call)) and _is_plain(training, call)]
    scope, end = _training_end(training, backward)
    for call in calls:
        family = _drawn(training, call)
        if family is None or _is_of_the_model(training, call):
            continue
        if files.function(call) is scope and call.lineno > end:
            continue  # drawn when the training is done
        if not any(kind == family and _comes_first(training, seed, call) for seed, kind in seeds):
            return False
    return True


def _is_called_here(training: Training, scope: ast.AST) -> bool:
    """Whether a scope is a file, or a function that the program calls, maybe by way of ``optimizer.step(closure)``."""
    if isinstance(scope, ast.Module) or training.store.callers.get(scope):
        return True
    handed = (argument for step in training.steps for argument in (*step.args, *(k.value for k in step.keywords)))
    return any(ref.node is scope for argument in handed for ref in training.value(argument).of(FunctionRef))


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.alias):
        yield node.name.rsplit(".", 1)[-1]


def _is_unknown_import(node: ast.AST, files: Files) -> bool:
    if isinstance(node, ast.Import):
        return any(not _is_known(alias.name, files) for alias in node.names)
    if not isinstance(node, ast.ImportFrom):
        return False
    if node.module and not node.level and node.module.split(".")[0] in _KNOWN:
        return False
    names = [node.module] if node.module else [alias.name for alias in node.names]
    return not all(_is_file(name, files) for name in names)


def _is_known(name: str, files: Files) -> bool:
    return name.split(".")[0] in _KNOWN or _is_file(name, files)


def _is_file(name: str, files: Files) -> bool:
    """Whether one of the files that were read may be this module."""
    wanted = name.replace(".", os.sep)
    return any(path == wanted or path.endswith(os.sep + wanted) for path in files.stems)


def _seeded(training: Training, call: ast.Call) -> str | None:
    return next((_SEEDS[name] for name in training.library_names(call.func) if name in _SEEDS), None)


def _is_plain(training: Training, seed: ast.Call) -> bool:
    """Whether a seed is set in any case, to something that does not differ between processes."""
    argument = ast.unparse(seed.args[0]) if len(seed.args) == 1 else ""
    around = list(training.module.ancestors(seed))
    simple = len(seed.args) == 1 and isinstance(seed.args[0], (ast.Constant, ast.Name, ast.Attribute))
    return (
        simple
        and re.search("rank|process|worker|gpu", argument, re.IGNORECASE) is None
        and not any(isinstance(one, _UNSURE) and not is_main_block(one) for one in around)
    )


def _drawn(training: Training, call: ast.Call) -> str | None:
    """Whose generator a call draws from (``torch``, ``numpy`` or ``random``), or ``None``."""
    name = next(_names(call.func), "")
    if not _DRAWS.match(name) or training.store.calls.get(call):  # the program's own functions are looked at themselves
        return None
    library = training.library_names(call.func)
    if library and all(one.startswith("torch.nn") or one in _SEEDS for one in library):
        return None  # layers and their initialisation: equal everywhere once prepared
    text = ast.unparse(call.func)
    if any(one.startswith("numpy.") for one in library) or text.startswith(("np.", "numpy.")):
        return "numpy"
    return "random" if text.startswith("random.") else "torch" if library or "torch" in text else "unknown"


def _is_of_the_model(training: Training, call: ast.Call) -> bool:
    """Parameters as they start, which the main process hands out, and noise as dropout has it."""
    function = training.module.function(call)
    return getattr(function, "name", "") in _OF_THE_MODEL and training.module.class_of(function) is not None


def _training_end(training: Training, backward: ast.Call) -> tuple[ast.AST, int]:
    """The function that holds the outermost loop around a backward, and the line where that loop ends."""
    module = training.module
    found: tuple[ast.AST, int] = (backward, 0)
    for scope in training.callers_of(module.function(backward)):
        around = [a for s in training.leading_to(backward, scope) for a in (s, *module.ancestors(s))]
        loops = [a for a in around if isinstance(a, (ast.For, ast.While)) and module.function(a) is scope]
        if loops:
            found = (scope, max(loop.end_lineno or loop.lineno for loop in loops))
    return found


def _comes_first(training: Training, seed: ast.Call, draw: ast.Call) -> bool:
    """Whether a seed is set before a draw in the same function; other functions are called from there."""
    module = training.module
    return module.function(seed) is not module.function(draw) or seed.lineno < draw.lineno

"""The table of known functions that make or count tensors and arrays, by qualified name."""

from __future__ import annotations

import re
from functools import lru_cache

_TENSOR_TYPE = re.compile(r"torch\.(cuda\.)?\w+Tensor")
FRESH = frozenset(
    "torch." + name
    for name in [
        "zeros",
        "ones",
        "full",
        "empty",
        "rand",
        "randn",
        "randint",
        "randperm",
        "normal",
        "tensor",
        "as_tensor",
        "arange",
        "linspace",
        "logspace",
        "eye",
        "from_numpy",
        "Tensor",
        "FloatTensor",
        "LongTensor",
        "DoubleTensor",
        "IntTensor",
        "ByteTensor",
        "BoolTensor",
        "HalfTensor",
        "bernoulli",
        "multinomial",
    ]
)
# Those of them, and their kin, that take ``device=`` and fill a tensor with values that are told.
CONSTANT_TENSORS = frozenset(
    "torch." + name
    for name in ["zeros", "ones", "full", "empty", "eye", "tensor", "zeros_like", "ones_like", "full_like"]
)
# Functions of NumPy that make an array whatever they are given, and those of numpy.random that do where given a size.
ARRAYS = frozenset(
    "numpy." + name
    for name in [
        "array",
        "asarray",
        "zeros",
        "ones",
        "full",
        "empty",
        "eye",
        "identity",
        "arange",
        "linspace",
        "logspace",
        "concatenate",
        "stack",
        "vstack",
        "hstack",
        "tile",
        "repeat",
        "zeros_like",
        "ones_like",
        "full_like",
        "random.rand",
        "random.randn",
        "random.random",
        "random.random_sample",
        "random.permutation",
    ]
)
SIZED_ARRAYS = {
    "numpy.random." + name: position
    for position, names in (
        (0, ["standard_normal"]),
        (1, ["exponential", "poisson", "choice"]),
        (2, ["normal", "uniform", "randint", "beta", "gamma", "binomial", "laplace", "lognormal"]),
    )
    for name in names
}
# Methods and attributes of a NumPy array that give an array again.
ARRAY_METHODS = frozenset(["astype", "reshape", "copy", "transpose", "flatten", "ravel", "clip", "repeat", "T"])
# Libraries that work on arrays in the CPU's memory.
ARRAY_LIBRARIES = ("numpy.", "matplotlib.", "PIL.", "sklearn.", "scipy.", "cv2.", "pandas.")
# Functions that count over samples: what they give for two batches adds up to what they give for both.
COUNTING = frozenset({"sklearn.metrics.confusion_matrix", "numpy.bincount", "torch.bincount"})


def is_cuda_tensor_type(name: str) -> bool:
    """Whether this qualified name is a tensor type of CUDA, like ``torch.cuda.FloatTensor``."""
    return name.startswith("torch.cuda.") and _TENSOR_TYPE.fullmatch(name) is not None


@lru_cache(maxsize=4096)
def makes_fresh_tensor(name: str) -> bool:
    """Whether calling this qualified name makes a tensor on the spot, on the CPU unless told."""
    return name in FRESH or _TENSOR_TYPE.fullmatch(name) is not None

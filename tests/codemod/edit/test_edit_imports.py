"""Imports that the new text needs, and imports that it no longer uses."""

import ast

import pytest

from accelerate_migrate.edit.apply import apply_edits
from accelerate_migrate.edits import AddImport, Delete, Replace

ACCELERATOR = AddImport("accelerate_runtime", "Accelerator")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            "import os\nimport torch\nimport torch.nn as nn\nfrom mine import net\n\nx = 1\n",
            "import os\nimport torch\nimport torch.nn as nn\nfrom accelerate_runtime import Accelerator\n"
            "from mine import net\n\nx = 1\n",
            id="behind the imports of torch",
        ),
        pytest.param(
            "import torch\nfrom numpy import array\nfrom torch import nn\nfrom tqdm import tqdm\n\nimport mine\n",
            "import torch\nfrom accelerate_runtime import Accelerator\nfrom numpy import array\nfrom torch import nn\n"
            "from tqdm import tqdm\n\nimport mine\n",
            id="in the order of those around",
        ),
        pytest.param(
            "from numpy import array\nfrom abc import ABC\n\nx = 1\n",
            "from numpy import array\nfrom abc import ABC\nfrom accelerate_runtime import Accelerator\n\nx = 1\n",
            id="at the end of the run",
        ),
        pytest.param(
            '# head\n"""Doc."""\n\nfrom __future__ import annotations\n\nx = 1\n',
            '# head\n"""Doc."""\n\nfrom __future__ import annotations\n\n'
            "from accelerate_runtime import Accelerator\n\nx = 1\n",
            id="behind __future__",
        ),
        pytest.param(
            '"""Doc."""\nx = 1\n',
            '"""Doc."""\n\nfrom accelerate_runtime import Accelerator\n\nx = 1\n',
            id="behind a docstring",
        ),
        pytest.param(
            '"""Doc."""\n', '"""Doc."""\n\nfrom accelerate_runtime import Accelerator\n', id="behind a docstring alone"
        ),
        pytest.param(
            "#!/usr/bin/env python\nx = 1\n",
            "#!/usr/bin/env python\nfrom accelerate_runtime import Accelerator\n\nx = 1\n",
            id="in a file without imports",
        ),
        pytest.param(
            "def f(): pass\n", "from accelerate_runtime import Accelerator\n\n\ndef f(): pass\n", id="above a function"
        ),
        pytest.param(
            "import os\nos.environ['A'] = '1'\nimport torch\nx = 1\n",
            "import os\nos.environ['A'] = '1'\nimport torch\nfrom accelerate_runtime import Accelerator\nx = 1\n",
            id="behind what sets the environment",
        ),
        pytest.param(
            "import os\nx = Accelerator()\nimport torch\n",
            "import os\nfrom accelerate_runtime import Accelerator\nx = Accelerator()\nimport torch\n",
            id="in front of its first use",
        ),
        pytest.param(
            "try:\n    import torch\nexcept ImportError: pass\n",
            "from accelerate_runtime import Accelerator\n\ntry:\n    import torch\nexcept ImportError: pass\n",
            id="never inside of try",
        ),
        pytest.param(
            "import torch; x = 1\n",
            "import torch\nfrom accelerate_runtime import Accelerator\nx = 1\n",
            id="on a line with others",
        ),
        pytest.param(
            "from accelerate_runtime import Zebra, set_seed\n",
            "from accelerate_runtime import Accelerator, Zebra, set_seed\n",
            id="sorted into what is there",
        ),
        pytest.param(
            "from accelerate_runtime import zebra, B\n",
            "from accelerate_runtime import zebra, B, Accelerator\n",
            id="behind what is not sorted",
        ),
        pytest.param(
            "from accelerate_runtime import (\n    A,\n    Zebra,  # z\n)\n",
            "from accelerate_runtime import (\n    A,\n    Accelerator,\n    Zebra,  # z\n)\n",
            id="in parentheses",
        ),
        pytest.param(
            "from accelerate_runtime import (\n    A,\n    AA,  # a\n)\n",
            "from accelerate_runtime import (\n    A,\n    AA,  # a\n    Accelerator,\n)\n",
            id="at the end of parentheses",
        ),
        pytest.param(
            "from accelerate_runtime import Accelerator\n", "from accelerate_runtime import Accelerator\n", id="there"
        ),
        pytest.param(
            "from accelerate_runtime import *\n",
            "from accelerate_runtime import *\nfrom accelerate_runtime import Accelerator\n",
            id="a star says nothing",
        ),
    ],
)
def test_where_an_import_goes(before, after, becomes):
    becomes(before, after, lambda s: [ACCELERATOR])


def test_the_names_of_one_module_share_a_line(becomes):
    becomes(
        "import torch\n",
        "import torch\nfrom accelerate_runtime import Accelerator, DataLoaderConfiguration\nfrom b import c\n",
        lambda s: [
            AddImport("accelerate_runtime", "DataLoaderConfiguration"),
            ACCELERATOR,
            AddImport("b", "c"),
            ACCELERATOR,
        ],
    )


def without_dist(s):
    return [Delete(s.stmt("dist.barrier()"))]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch.distributed as dist\nimport os\ndist.barrier()\nx = 1\n", "import os\nx = 1\n"),
        ("from torch import distributed as dist, nn\ndist.barrier()\nnn\n", "from torch import nn\nnn\n"),
        (
            "from torch import (\n    distributed as dist,  # d\n    nn,  # n\n)\ndist.barrier()\n",
            "from torch import (\n    nn,  # n\n)\n",
        ),
        ("import os, dist, sys\ndist.barrier()\n", "import os, sys\n"),
        ("def f():\n    import dist\n    dist.barrier()\n", "def f():\n    pass\n"),
    ],
)
def test_an_import_that_is_no_longer_used_goes(before, after, becomes):
    becomes(before, after, without_dist)


@pytest.mark.parametrize(
    "before",
    [
        "import dist, os\ndist.barrier()\ndist.rank\n",
        "import dist  # noqa: F401\ndist.barrier()\n",
        "import dist\n__all__ = ['dist']\ndist.barrier()\n",
        "import dist\ndef f(x: 'dist.Group'): pass\ndist.barrier()\n",
        "import unused\ntry:\n    import dist\nexcept ImportError:\n    dist = None\ndist.barrier()\n",
        "if x:\n    import dist\ndist.barrier()\n",
        "import dist.sub\ndist.barrier()\ndist\n",
    ],
)
def test_nothing_else_goes(before, becomes):
    becomes(before, before.replace("dist.barrier()\n", ""), without_dist)


def test_names_that_other_files_take_stay():
    data = b"import dist\ndist.barrier()\n"
    tree = ast.parse(data)
    assert apply_edits(data, tree, [Delete(tree.body[1])], exported={"dist"}) == b"import dist\n"


def test_removing_and_adding_meet_on_one_line(becomes):
    becomes(
        "from accelerate_runtime import old, other\nold()\nother\n",
        "from accelerate_runtime import Accelerator, other\nAccelerator()\nother\n",
        lambda s: [Replace(s.expr("old"), "Accelerator"), ACCELERATOR],
    )
    becomes(
        "import torch\nfrom accelerate_runtime import old\nold()\ntorch\n",
        "import torch\nfrom accelerate_runtime import Accelerator\nAccelerator()\ntorch\n",
        lambda s: [Replace(s.expr("old"), "Accelerator"), ACCELERATOR],
    )

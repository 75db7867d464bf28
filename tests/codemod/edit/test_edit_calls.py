"""Arguments and parameters that come, go or change their name, in the layout that the list has."""

import pytest

from accelerate_migrate.edits import (
    AddArgument,
    AddParameter,
    EditConflict,
    RemoveArgument,
    RemoveParameter,
    RenameKeyword,
    RenameParameter,
    Replace,
)


def call(source):
    return next(s.value for s in source.tree.body if hasattr(s, "value"))


@pytest.mark.parametrize(
    ("before", "index", "name", "after"),
    [
        ("f()\n", 0, None, "f(n)\n"),
        ("f()\n", None, "k", "f(k=n)\n"),
        ("f(a)\n", 0, None, "f(n, a)\n"),
        ("f(a, b)\n", 1, None, "f(a, n, b)\n"),
        ("f(a, b)\n", 9, None, "f(a, b, n)\n"),
        ("f(a, k=1)\n", 1, None, "f(a, n, k=1)\n"),
        ("f(k=1)\n", 0, None, "f(n, k=1)\n"),
        ("f(a, *b, **c)\n", 2, None, "f(a, *b, n, **c)\n"),
        ("f(a, **c)\n", None, "k", "f(a, **c, k=n)\n"),
        ("f(a,)\n", 1, None, "f(a, n,)\n"),
        ("f(x for x in y)\n", None, "k", "f((x for x in y), k=n)\n"),
        ("f(\n    a,\n    b,\n)\n", None, "k", "f(\n    a,\n    b,\n    k=n,\n)\n"),
        ("f(\n    a,\n    b\n)\n", None, "k", "f(\n    a,\n    b,\n    k=n\n)\n"),
        ("f(\n    a,\n)\n", 0, None, "f(\n    n,\n    a,\n)\n"),
        ("f(\n    a\n)\n", None, "k", "f(\n    a,\n    k=n\n)\n"),
        ("f(a,\n  b)\n", None, "k", "f(a,\n  b,\n  k=n)\n"),
        ("f(a, b,\n  c)\n", None, "k", "f(a, b,\n  c, k=n)\n"),
        ("f(\n    a,  # one\n    b,  # two\n)\n", None, "k", "f(\n    a,  # one\n    b,  # two\n    k=n,\n)\n"),
        ("f(\n    a,  # one\n    b  # two\n)\n", None, "k", "f(\n    a,  # one\n    b,  # two\n    k=n\n)\n"),
    ],
)
def test_adding_an_argument(before, index, name, after, becomes):
    becomes(before, after, lambda s: [AddArgument(call(s), "n", index, name)])


def test_a_value_that_needs_parentheses(becomes):
    becomes("f()\n", "f(k=(yield))\n", lambda s: [AddArgument(call(s), "(yield)", None, "k")])
    becomes("f()\n", "f((a, b))\n", lambda s: [AddArgument(call(s), "a, b", 0)])


@pytest.mark.parametrize(
    ("before", "gone", "after"),
    [
        ("f(a)\n", "a", "f()\n"),
        ("f(\n    a,\n)\n", "a", "f()\n"),
        ("f(a, b)\n", "a", "f(b)\n"),
        ("f(a, b)\n", "b", "f(a)\n"),
        ("f(a, b,)\n", "b", "f(a,)\n"),
        ("f(a, b, c)\n", "b", "f(a, c)\n"),
        ("f(a, *b, k=c)\n", "k", "f(a, *b)\n"),
        ("f(a, *b, k=c)\n", "b", "f(a, k=c)\n"),
        ("f(a, k=c, **d)\n", None, "f(a, k=c)\n"),
        ("f(\n    a,\n    b,\n    c,\n)\n", "b", "f(\n    a,\n    c,\n)\n"),
        ("f(\n    a,\n    b,\n    c,\n)\n", "c", "f(\n    a,\n    b,\n)\n"),
        ("f(\n    a,\n    b\n)\n", "b", "f(\n    a\n)\n"),
        ("f(\n    a,\n    b\n)\n", "a", "f(\n    b\n)\n"),
        (
            "f(\n    a,  # one\n    # above two\n    b,  # two\n    c,  # three\n)\n",
            "b",
            "f(\n    a,  # one\n    c,  # three\n)\n",
        ),
        ("f(\n    a,  # one\n    b,  # two\n)\n", "b", "f(\n    a,  # one\n)\n"),
        ("f(\n    a,  # one\n    b  # two\n)\n", "b", "f(\n    a  # one\n)\n"),
        ("f(\n    # above one\n    a,  # one\n    b,  # two\n)\n", "a", "f(\n    b,  # two\n)\n"),
        ("f(a, b,\n  c)\n", "b", "f(a,\n  c)\n"),
        ("f(a,\n  b, c)\n", "b", "f(a,\n  c)\n"),
        ("f(a,\n  b)\n", "b", "f(a)\n"),
        ("f(a,\n  b)\n", "a", "f(b)\n"),
    ],
)
def test_removing_an_argument(before, gone, after, becomes):
    def edits(s):
        node = call(s)
        found = [k for k in node.keywords if k.arg == gone]
        found += [a for a in node.args if getattr(getattr(a, "value", a), "id", "") == gone]
        return [RemoveArgument(node, found[0])]

    becomes(before, after, edits)


def test_several_edits_of_one_call(becomes):
    becomes(
        "DataLoader(data, 8, sampler=s, pin_memory=x.cuda(), num_workers=4)\n",
        "DataLoader(data, g, batch=x, num_workers=4, shuffle=True)\n",
        lambda s: [
            AddArgument(call(s), "True", name="shuffle"),
            RemoveArgument(call(s), call(s).args[1]),
            AddArgument(call(s), "g", 1),
            RemoveArgument(call(s), call(s).keywords[0]),
            RenameKeyword(call(s), call(s).keywords[1], "batch"),
            Replace(s.expr("x.cuda()"), "x"),
        ],
    )


def test_replacing_a_call_and_its_arguments_is_a_conflict(edit):
    with pytest.raises(EditConflict, match="change one call"):
        edit("f(a)\n", lambda s: [Replace(call(s), "g()"), AddArgument(call(s), "n", 0)])


def test_removing_an_argument_twice_is_a_conflict_only_if_it_differs(becomes):
    becomes(
        "f(a)\n",
        "f()\n",
        lambda s: [RemoveArgument(call(s), call(s).args[0]), RemoveArgument(call(s), call(s).args[0])],
    )


def function(source):
    return source.tree.body[0]


@pytest.mark.parametrize(
    ("before", "index", "after"),
    [
        ("def f(): pass\n", 0, "def f(n): pass\n"),
        ("def f(a): pass\n", 0, "def f(n, a): pass\n"),
        ("def f(a): pass\n", 1, "def f(a, n): pass\n"),
        ("def f(a, /, b=1): pass\n", 0, "def f(n, a, /, b=1): pass\n"),
        ("def f(a, /, b=1): pass\n", 1, "def f(a, /, n, b=1): pass\n"),
        ("def f(a, *args): pass\n", 1, "def f(a, n, *args): pass\n"),
        ("def f(*, k): pass\n", 0, "def f(n, *, k): pass\n"),
        ("def f(**k): pass\n", 0, "def f(n, **k): pass\n"),
        ("async def f(a, **k) -> int: pass\n", 1, "async def f(a, n, **k) -> int: pass\n"),
        (
            "@d\ndef f(\n    a: int,\n    b: int = 1,\n): pass\n",
            1,
            "@d\ndef f(\n    a: int,\n    n,\n    b: int = 1,\n): pass\n",
        ),
        ("def f(\n    a,\n    b,\n): pass\n", 2, "def f(\n    a,\n    b,\n    n,\n): pass\n"),
        ("def f(\n    a,\n    b,\n    *c,\n): pass\n", 2, "def f(\n    a,\n    b,\n    n,\n    *c,\n): pass\n"),
        ("def f(a,\n      b): pass\n", 2, "def f(a,\n      b,\n      n): pass\n"),
    ],
)
def test_adding_a_parameter(before, index, after, becomes):
    becomes(before, after, lambda s: [AddParameter(function(s), index, "n")])


def test_several_parameters_keep_their_order(becomes):
    becomes(
        "def f(a, b): pass\n",
        "def f(a, m, n, b, o, p): pass\n",
        lambda s: [AddParameter(function(s), *new) for new in ((1, "m"), (2, "o"), (1, "n"), (9, "p"))],
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(a, device, b): pass\n", "def f(a, accelerator, b): pass\n"),
        ("def f(a, device: torch.device = None): pass\n", "def f(a, accelerator=None): pass\n"),
        ("def f(*, device='cuda'): pass\n", "def f(*, accelerator='cuda'): pass\n"),
        ("def f(device, /): pass\n", "def f(accelerator, /): pass\n"),
        ("def f(a, *device): pass\n", "def f(a, *accelerator): pass\n"),
        (
            "def f(\n    a,\n    device: str,  # where\n): pass\n",
            "def f(\n    a,\n    accelerator,  # where\n): pass\n",
        ),
    ],
)
def test_renaming_a_parameter(before, after, becomes):
    becomes(before, after, lambda s: [RenameParameter(function(s), "device", "accelerator")])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(rank): pass\n", "def f(): pass\n"),
        ("def f(rank, a): pass\n", "def f(a): pass\n"),
        ("def f(a, rank): pass\n", "def f(a): pass\n"),
        ("def f(a, rank: int = 0, *b): pass\n", "def f(a, *b): pass\n"),
        ("def f(rank, **k): pass\n", "def f(**k): pass\n"),
        ("def f(a, *, rank): pass\n", "def f(a): pass\n"),
        ("def f(a, *, rank, b): pass\n", "def f(a, *, b): pass\n"),
        ("def f(rank, /, a): pass\n", "def f(a): pass\n"),
        ("def f(\n    rank,\n    a,\n): pass\n", "def f(\n    a,\n): pass\n"),
    ],
)
def test_removing_a_parameter(before, after, becomes):
    becomes(before, after, lambda s: [RemoveParameter(function(s), "rank")])


def test_a_function_s_own_edits_and_those_in_its_body(becomes):
    becomes(
        "class A:\n    def f(self, x=a.cuda()):\n        y.cuda()\n",
        "class A:\n    def f(self, accelerator, x=a):\n        y\n",
        lambda s: [
            AddParameter(function(s).body[0], 1, "accelerator"),
            Replace(s.expr("a.cuda()"), "a"),
            Replace(s.expr("y.cuda()"), "y"),
        ],
    )


def test_renaming_what_is_not_there_is_a_conflict(edit):
    with pytest.raises(EditConflict, match="no parameter device"):
        edit("def f(): pass\n", lambda s: [RenameParameter(function(s), "device", "x")])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(g): pass\n", "def f(): pass\n"),
        ("def f(a, g): pass\n", "def f(a): pass\n"),
        ("def f(g, a): pass\n", "def f(a): pass\n"),
        ("def f(a, g: int = 1, b=2): pass\n", "def f(a, b=2): pass\n"),
        ("def f(a, g, *b, **c): pass\n", "def f(a, *b, **c): pass\n"),
        ("def f(a, *b, g=None, c=1): pass\n", "def f(a, *b, c=1): pass\n"),
        ("def f(a, *, c, g=None): pass\n", "def f(a, *, c): pass\n"),
        ("def f(a, *, g=None, **c): pass\n", "def f(a, **c): pass\n"),
        ("def f(\n    a,\n    g,\n    b,\n): pass\n", "def f(\n    a,\n    b,\n): pass\n"),
    ],
)
def test_a_parameter_that_goes(before, after, becomes):
    becomes(before, after, lambda s: [RemoveParameter(function(s), "g")])


def test_a_parameter_that_is_not_there(edit):
    with pytest.raises(EditConflict, match="no parameter g"):
        edit("def f(): pass\n", lambda s: [RemoveParameter(function(s), "g")])

"""Bytes: what no edit is about is as it was, whatever the file looks like."""

import ast
import subprocess
import sys

import pytest

from accelerate_migrate.edit.apply import RoundTripError, apply_edits
from accelerate_migrate.edits import AddImport, Delete, Insert, Replace, Wrap


def statement(tree: ast.Module, name: str) -> ast.stmt:
    return next(
        s for s in ast.walk(tree) if isinstance(s, ast.Expr) and isinstance(s.value, ast.Name) and s.value.id == name
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(b"a\nif x:\n\tb\n\n\n\nc  \n", b"if x:\n\tif m:\n\t\tb\n\t\tnew\n\n\n\nc  \n", id="tabs"),
        pytest.param(b"a\r\nif x:\r\n  b\r\nc\r\n", b"if x:\r\n  if m:\r\n    b\r\n    new\r\nc\r\n", id="CRLF"),
        pytest.param(b"a\r\nif x:\n  b\r\nc\r\n", b"if x:\n  if m:\r\n    b\r\n    new\r\nc\r\n", id="mixed newlines"),
        pytest.param(
            b"\xef\xbb\xbfa\nif x:\n b\nc", b"\xef\xbb\xbfif x:\n if m:\n  b\n  new\nc", id="BOM, no last newline"
        ),
        pytest.param(b"c\na\nif x:\n b", b"c\nif x:\n if m:\n  b\n  new", id="the last line, no newline"),
        pytest.param(
            b"# coding: latin-1\na\nif x:\n    b\nc = '\xe9'\n",
            b"# coding: latin-1\nif x:\n    if m:\n        b\n        new\nc = '\xe9'\n",
            id="latin-1",
        ),
        pytest.param(b"\x0c\na\nif x :\\\n    \n    b\n#c\n\x0c\n    # d\n", None, id="form feeds and a backslash"),
    ],
)
def test_the_rest_of_the_file_is_untouched(before, after):
    try:
        tree = ast.parse(before)
    except SyntaxError:
        pytest.skip("not Python for this interpreter")
    b = statement(tree, "b")
    edits = [Delete(statement(tree, "a")), Wrap((b,), "if m:")]
    result = apply_edits(before, tree, [*edits, _new(b)])
    if after is not None:
        assert result == after
    ast.parse(result)


def _new(b: ast.stmt) -> Replace:
    """``b`` becomes ``b; new`` by way of an edit inside the Wrap."""
    from accelerate_migrate.edits import ReplaceStatement

    return ReplaceStatement(b, "b\nnew")  # type: ignore[return-value]


def test_no_edits_no_change():
    data = b"x = 1 \n\n\n\ty"  # not even Python
    assert apply_edits(data, ast.Module([], []), []) == data


def test_an_import_alone_changes_one_line():
    data = b"import torch\r\n\r\nx = torch.ones( 1 )\r\n"
    tree = ast.parse(data)
    assert apply_edits(data, tree, [AddImport("a", "b")]) == (
        b"import torch\r\nfrom a import b\r\n\r\nx = torch.ones( 1 )\r\n"
    )


def test_a_file_that_libcst_cannot_read_is_left_alone():
    data = b"x = 1\ry = 2\r"  # libcst gives back other line ends
    tree = ast.parse(data)
    with pytest.raises(RoundTripError):
        apply_edits(data, tree, [Insert(tree.body[0], "z")])


def test_nothing_heavy_is_imported():
    """``libcst.matchers`` and ``libcst.codemod`` each double start-up."""
    code = (
        "import sys, accelerate_migrate.edit.apply, accelerate_migrate.edit.guard\n"
        "print([m for m in sys.modules if m.startswith(('libcst.matchers', 'libcst.codemod', 'torch'))])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"

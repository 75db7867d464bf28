"""The guard: what it lets pass, what it stops, and what it says."""

import warnings

import pytest

from accelerate_migrate.edit.guard import GuardError, check


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("x = 1\n", "x = = 1\n", r"does not compile: invalid syntax \(line 1\)"),
        ("x = 1\n", "def f():\n    pass\nreturn\n", "does not compile: 'return' outside function"),
        ("x = 1\n", "x = 1\0\n", "does not compile"),
        ("import a\na\n", "a\n", "binds any more: a$"),
        ("def f(d):\n    return d\n", "def f(a):\n    return d\n", r"binds any more: d \(f\)"),
        (
            "class A:\n    def f(self):\n        x = 1\n        return lambda: x\n",
            "class A:\n    def f(self):\n        return lambda: x\n",
            r"x \(A\.f\.lambda\)",
        ),
        ("x = 1\ny = [x for _ in z]\n", "y = [x for _ in z]\n", r"binds any more: x"),
        ("def f():\n    scaler = g()\n    scaler.step()\n", "def f():\n    scaler.step()\n", "scaler"),
    ],
)
def test_what_it_stops(before, after, message):
    with pytest.raises(GuardError, match=message):
        check(before.encode(), after.encode())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("unbound\n", "unbound + 1\n", id="unbound before"),
        pytest.param("from a import *\nx = 1\nx\n", "from a import *\nx\n", id="a star import may bind it"),
        pytest.param("x\n", "print(__file__, __name__, len)\nx\n", id="builtins"),
        pytest.param("0\n", "def f():\n    global x\n    x = 1\ndef g():\n    return x\n", id="global"),
        pytest.param("0\n", "class A:\n    y = 1\n    z = y\n    def f(self): return __class__\n", id="class scope"),
        pytest.param("0\n", "def f(a):\n    b = a\n    def g(): return a, b\n    return g\n", id="closures"),
        pytest.param(
            "0\n",
            "for i in []: i\nwith i as j: j\ntry: pass\nexcept E as e: e\n".replace("E as", "OSError as"),
            id="targets",
        ),
        pytest.param("0\n", "[x for x in [] if (y := x)]\ny\n", id="walrus"),
        pytest.param("# -*- coding: latin-1 -*-\nx = 1\n", "# -*- coding: latin-1 -*-\nx = 'é'\n", id="encoding"),
        pytest.param("x = 1\n", "\ufeffx = 1\r\nx\r\n", id="byte order mark"),
    ],
)
def test_what_it_lets_pass(before, after):
    encoding = "latin-1" if "latin-1" in after else "utf-8"
    check(before.encode(encoding), after.encode(encoding))


def test_warnings_about_the_script_do_not_leak():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(b"x = 1\nx is 1\n", b"x = 1\nx is 1\ny = '\\d'\n")

"""The descent: every node of the ast is found in libcst, and says there what it says in the file."""

import ast
import re
import sys
import sysconfig
from pathlib import Path

import libcst as cst
import pytest

from accelerate_migrate.edit.locate import Trees, follow, put

STDLIB = Path(sysconfig.get_path("stdlib"))
SAMPLE = ["ast.py", "dataclasses.py", "functools.py", "tempfile.py", "asyncio/taskgroups.py"]

SYNTAX = """
@d(1)
@e
async def f(a: A, /, b: B = 1, *args: *Ts, c, k: K = 2, **kw: KW) -> R:
    async with a as (b, c), d: pass
    async for x, *y in z, w: await x
    else: return
    return *a, (yield), (yield from b), (await c)
class C(A, *B, metaclass=M, **K): x: int; y: str = "a" "b" f"{c}"
with (a as b, c): pass
with (a, b): pass
with (a, b) as c: pass
for x in a, b: continue
while (n := f(x for x in y)): break
try: raise E from e
except (A, B) as e: raise
except C: assert a, b
else: del a, (b, c), d[0]
finally: global g; import a.b as c, d
if a: pass
elif b: x = y = 1
elif not c: x += yield
else:
    if d: pass
x[a], x[a, b], x[(a, b)], x[a,], x[:, 1:2, ::3], x[*a], x[*a, b], x[()], x[lambda: (yield)]
f(a, *b, k=c, *d, **e, l=g)
a and b and c or d and (e and f) or not g
a < b <= (c < d) != e in f not in g is h is not i
{**a, b: c}, {a, *b}, [*a, b], (), (a,), [a for b in c if d if e for f in g], {a: b for c in d}, {a for b in c}
lambda a, /, b=1, *c, d, e=2, **f: a if b else c
f"{a!r:>{b}.{c}} {d=} {{}} {f'{e}'}" "x" rf'{g:{h}}'
-a ** -b @ c // ~d, +e if (f) else ((g))
match a, *b:
    case -1 | 1 + 2j | "a" "b" | None | x.y: pass
    case [A(b, c=d), *_] | (e, f) if g: pass
    case {"k": v, x.y: [w], **rest} as m: pass
    case a, *b: pass
print(a, sep=""); x = 1; y: int
type_ = [
    1,  # one
    (2),
]
def g(): nonlocal_ = 1; return
"""
if sys.version_info < (3, 11):
    SYNTAX = SYNTAX.replace("*args: *Ts", "*args: Ts").replace("x[*a], x[*a, b], ", "")


def plain(text: str) -> str:
    """The text without what libcst and ast count to different nodes: parentheses, commas, spaces, comments."""
    return re.sub(r"[\s()\\;,]|#[^\n]*", "", text)


def inside_strings(tree: ast.Module) -> set[int]:
    """The nodes in f-strings; before Python 3.12 these have no positions of their own."""
    return {id(n) for s in ast.walk(tree) if isinstance(s, ast.JoinedStr) for n in ast.walk(s) if n is not s}


def check(data: bytes) -> int:
    tree = ast.parse(data)
    module = cst.parse_module(data)
    trees = Trees(tree, module)
    lines = re.split(rb"(?<=\n)", data.replace(b"\r\n", b"\n"))
    in_string = inside_strings(tree)
    count = 0
    for node in ast.walk(tree):
        if not isinstance(node, (ast.expr, ast.stmt, ast.arg, ast.keyword, ast.excepthandler, ast.pattern)):
            continue
        if id(node) in in_string and isinstance(node, ast.JoinedStr | ast.Constant | ast.FormattedValue):
            continue
        found = trees.node(node)
        code = "".join(map(module.code_for_node, found if isinstance(found, tuple | list) else [found]))
        count += 1
        if id(node) in in_string:
            again, dump = ast.dump(ast.parse(f"({code})", mode="eval").body), ast.dump(node)
            assert again.replace("Store()", "Load()") == dump.replace("Store()", "Load()")
            continue
        first, last = node.lineno - 1, node.end_lineno - 1
        span = [*lines[first:last], lines[last][: node.end_col_offset]]
        span[0] = span[0][node.col_offset :]
        ours, theirs = plain(b"".join(span).decode()), plain(code)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.decorator_list:
            theirs = theirs[theirs.find(ours[:3]) :] if ours else theirs
            assert ours[:40] in plain(code), (node.lineno, ours)
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.arg):
            assert ours.removeprefix("el").lstrip("*") in theirs, (node.lineno, ours, theirs)
        else:
            assert ours.lstrip("*") == theirs.lstrip("*"), (node.lineno, ours, theirs)
    return count


def test_all_of_the_syntax():
    assert check(SYNTAX.encode()) > 300


@pytest.mark.parametrize("name", SAMPLE)
def test_the_standard_library(name):
    path = STDLIB / name
    if not path.exists():
        pytest.skip(f"no {name} here")
    assert check(path.read_bytes()) > 100


def test_putting_back_what_is_there_changes_nothing():
    data = SYNTAX.encode()
    tree = ast.parse(data)
    module = cst.parse_module(data)
    trees = Trees(tree, module)
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and id(node) not in inside_strings(tree):
            path = trees.path(node)
            parent = trees.node(trees.parents[id(node)])
            same = put(parent, path, follow(parent, path))
            codes = [
                "".join(map(module.code_for_node, part if isinstance(part, tuple | list) else [part]))
                for part in (same, parent)
            ]
            assert codes[0] == codes[1]

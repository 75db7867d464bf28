"""Replace: an expression in the place of another, its holes, and the parentheses that the place asks for."""

import ast

import pytest

from accelerate_migrate.edit.apply import apply_edits
from accelerate_migrate.edits import EditConflict, Replace


def receiver(node: ast.expr) -> ast.expr:
    """``x`` of ``x.cuda()``."""
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Attribute)
    return node.func.value


@pytest.mark.parametrize(
    ("before", "node", "after"),
    [
        ("model = Net().cuda()\n", "Net().cuda()", "model = Net()\n"),
        ("y = f(a, x.cuda() , b)  # why\n", "x.cuda()", "y = f(a, x , b)  # why\n"),
        ("y = (a + b).cuda()\n", "(a + b).cuda()", "y = a + b\n"),
        ("y = (a + b).cuda() * 2\n", "(a + b).cuda()", "y = (a + b) * 2\n"),
        ("y = 2 ** (a + b).cuda()\n", "(a + b).cuda()", "y = 2 ** (a + b)\n"),
        ("y = a - (b - c).cuda()\n", "(b - c).cuda()", "y = a - (b - c)\n"),
        ("y = (a - b).cuda() - c\n", "(a - b).cuda()", "y = a - b - c\n"),
        ("return_(x.cuda())\n", "x.cuda()", "return_(x)\n"),
        ("def f(): return(x.cuda())\n", "x.cuda()", "def f(): return(x)\n"),
        ("for x in (a, b).cuda(): pass\n", "(a, b).cuda()", "for x in (a, b): pass\n"),
        ("y = [*a.cuda(), 1]\n", "a.cuda()", "y = [*a, 1]\n"),
        ("y = {**a.cuda()}\n", "a.cuda()", "y = {**a}\n"),
        ("y = a[b.cuda(), 1:c]\n", "b.cuda()", "y = a[b, 1:c]\n"),
        ("y = a[0:b.cuda()]\n", "b.cuda()", "y = a[0:b]\n"),
        ("y = a and b.cuda() and c\n", "b.cuda()", "y = a and b and c\n"),
        ("y = [v.cuda() for u in us for v in u if v]\n", "v.cuda()", "y = [v for u in us for v in u if v]\n"),
        ("y = {k: v.cuda() for k, v in b}\n", "v.cuda()", "y = {k: v for k, v in b}\n"),
        ("f = lambda x, d=a.cuda(): x\n", "a.cuda()", "f = lambda x, d=a: x\n"),
        ("if (n := a.cuda()) > 1: pass\n", "a.cuda()", "if (n := a) > 1: pass\n"),
        ("with a.cuda() as b, c: pass\n", "a.cuda()", "with a as b, c: pass\n"),
        ("@d(a.cuda())\nclass A(B, metaclass=M): pass\n", "a.cuda()", "@d(a)\nclass A(B, metaclass=M): pass\n"),
        ("raise E(1) from a.cuda()\n", "a.cuda()", "raise E(1) from a\n"),
        ("del a.cuda().b, c\n", "a.cuda()", "del a.b, c\n"),
        ("x: T[a.cuda()] = b\n", "a.cuda()", "x: T[a] = b\n"),
        ("try: a\nexcept E(b.cuda()) as e: pass\n", "b.cuda()", "try: a\nexcept E(b) as e: pass\n"),
        ("match a.cuda():\n    case [1, *b]: pass\n", "a.cuda()", "match a:\n    case [1, *b]: pass\n"),
        ("match a:\n    case {1: b} if c.cuda(): pass\n", "c.cuda()", "match a:\n    case {1: b} if c: pass\n"),
        ('print(f"{x.cuda():.2f} {y}" "z")\n', "x.cuda()", 'print(f"{x:.2f} {y}" "z")\n'),
        ('print("a" f"{y}" f"{y:{x.cuda()}}")\n', "x.cuda()", 'print("a" f"{y}" f"{y:{x}}")\n'),
    ],
)
def test_dropping_a_call_in_many_places(before, node, after, becomes):
    becomes(before, after, lambda s: [Replace(s.expr(node), "{0}", (receiver(s.expr(node)),))])


@pytest.mark.parametrize(
    ("before", "template", "after"),
    [
        ("y = X\n", "acc.gather({0})", "y = acc.gather(a)\n"),
        ("y = X\n", "{{'k': {0}}}", "y = {'k': a}\n"),
        ("y = X * 2\n", "{0} + 1", "y = (a + 1) * 2\n"),
        ("y = X.b\n", "not {0}", "y = (not a).b\n"),
        ("y = X ** 2\n", "-{0}", "y = (-a) ** 2\n"),
        ("y = 2 ** X\n", "-{0}", "y = 2 ** -a\n"),
        ("y = f(X)\n", "{0}, 1", "y = f((a, 1))\n"),
        ("y = X\n", "{0}, 1", "y = a, 1\n"),
        ("y = f(k=X)\n", "{0} if b else c", "y = f(k=a if b else c)\n"),
        ("y = b if X else c\n", "{0} if b else c", "y = b if (a if b else c) else c\n"),
        ("y = X < 1\n", "{0} < 2", "y = (a < 2) < 1\n"),
        ("y = f'{X}'\n", "{{{0}}}", "y = f'{ {a}}'\n"),
        ("y = f'{X.b}'\n", "{{1: {0}}}", "y = f'{ {1: a}.b}'\n"),
        ("y = f'{X}'\n", "lambda: {0}", "y = f'{(lambda: a)}'\n"),
        ('y = f"{X}"\n', 'd["k"] + {0}', "y = f\"{d['k'] + a}\"\n"),
        ("y = f(*X)\n", "{0} or b", "y = f(*a or b)\n"),
        ("y = [*X]\n", "{0} or b", "y = [*(a or b)]\n"),
        ("y = X.real\n", "1", "y = (1).real\n"),
    ],
)
def test_parentheses_come_where_the_place_asks_for_them(before, template, after, becomes):
    def edits(s):
        node = s.expr("X")
        return [Replace(node, template.replace("{0}", "a") if "{0}" not in template else template, _a(s, template))]

    def _a(s, template):
        return (s.expr("a"),) if "{0}" in template else ()

    becomes("a\n" + before, "a\n" + after, edits)


@pytest.mark.parametrize(
    ("hole", "template", "after"),
    [
        ("a + b", "{0}.item()", "(a + b).item()"),
        ("a + b", "{0} * 2", "(a + b) * 2"),
        ("a + b", "f({0}, k={0})", "f(a + b, k=a + b)"),
        ("(a + b)", "f({0})", "f(a + b)"),
        ("a, b", "f({0})", "f((a, b))"),
        ("(a, b)", "f({0})", "f((a, b))"),
        ("(yield)", "f({0})", "f((yield))"),
        ("a if b else c", "{0} if d else e", "(a if b else c) if d else e"),
        ("lambda: a", "{0}()", "(lambda: a)()"),
        ("(x for x in y)", "f({0}, 1)", "f((x for x in y), 1)"),
        ("a or b", "{0} and c", "(a or b) and c"),
        ("a", "f'{{{0}}}'", "f'{a}'"),
        ("a\\\n  .b", "f({0})", "f(a\\\n  .b)"),
    ],
)
def test_what_fills_a_hole_gets_parentheses(hole, template, after, becomes):
    becomes(
        f"X\ndef g():\n    y = {hole}\n",
        f"{after}\ndef g():\n    y = {hole}\n",
        lambda s: [Replace(s.expr("X"), template, (s.tree.body[1].body[0].value,))],
    )


def test_edits_nest_through_holes(becomes):
    becomes(
        "criterion(model(x.cuda()), y.cuda()).backward()\n",
        "accelerator.backward(criterion(model(x), y))\n",
        lambda s: [
            Replace(
                s.stmt("criterion(model(x.cuda()), y.cuda()).backward()").value,
                "accelerator.backward({0})",
                (s.expr("criterion(model(x.cuda()), y.cuda())"),),
            ),
            Replace(s.expr("x.cuda()"), "{0}", (s.expr("x"),)),
            Replace(s.expr("y.cuda()"), "{0}", (s.expr("y"),)),
        ],
    )


def test_a_node_may_fill_a_hole_of_its_own_template(becomes):
    becomes(
        "n = correct(x.cuda())\n",
        "n = accelerator.gather(correct(x))\n",
        lambda s: [
            Replace(s.expr("correct(x.cuda())"), "accelerator.gather({0})", (s.expr("correct(x.cuda())"),)),
            Replace(s.expr("x.cuda()"), "x"),
        ],
    )


def test_lines_stay_in_brackets(becomes):
    """What ran over several lines between parentheses that go gets a pair of its own, except inside of brackets."""
    becomes(
        """
        y = (model(x)
             + 1).cuda()
        f((model(x)
           + 2).cuda())
        z = (
            model(x)
            .cuda()
        )
        """,
        """
        y = (model(x)
             + 1)
        f(model(x)
           + 2)
        z = model(x)
        """,
        lambda s: [
            Replace(node, "{0}", (receiver(node),))
            for node in (s.expr("(model(x) + 1).cuda()"), s.expr("(model(x) + 2).cuda()"), s.expr("model(x).cuda()"))
        ],
    )


def test_a_comment_in_parentheses_is_not_lost(becomes):
    becomes(
        """
        loss = (  # mean
            a + b
        ).cuda()
        """,
        """
        loss = (  # mean
            a + b
        )
        """,
        lambda s: [Replace(s.expr("(a + b).cuda()"), "{0}", (s.expr("a + b"),))],
    )


def test_starred_and_slices(becomes):
    becomes(
        "f(*xs)\ng(x[1:2], x[1:2, *y], [*z])\n",
        "f(xs)\ng(x[1], x[all], [z])\n",
        lambda s: [
            Replace(s.expr("f(*xs)").args[0], "xs"),
            Replace(s.expr("x[1:2]").slice, "1"),
            Replace(s.expr("x[1:2, *y]").slice, "all"),
            Replace(s.expr("[*z]").elts[0], "z"),
        ],
    )


def test_star_arguments_fill_holes(becomes):
    becomes(
        "f(a, *xs, x[1:2], x[1:2, 3])\n",
        "g(*xs, a, y[1:2], y[1:2, 3])\n",
        lambda s: [
            Replace(
                s.tree.body[0].value,
                "g({0}, {1}, y[{2}], y[{3}])",
                (*reversed(s.tree.body[0].value.args[:2]), s.expr("x[1:2]").slice, s.expr("x[1:2, 3]").slice),
            )
        ],
    )


def test_the_bare_tuple_of_a_subscript_fills_a_hole(becomes):
    becomes("x[a, b]\n", "[(a, b)]\n", lambda s: [Replace(s.expr("x[a, b]"), "[{0}]", (s.expr("x[a, b]").slice,))])


def test_two_different_edits_of_one_node_are_a_conflict(edit):
    with pytest.raises(EditConflict, match=r"Replace\('a'\) of line 1 and Replace\('b'\) of line 1"):
        edit("x\n", lambda s: [Replace(s.expr("x"), "a"), Replace(s.expr("x"), "b")])


def test_edits_that_say_the_same_are_one(becomes):
    becomes("x\n", "a\n", lambda s: [Replace(s.expr("x"), "a"), Replace(s.expr("x"), "a")])


def test_an_edit_of_what_a_template_dropped_is_a_conflict(edit):
    with pytest.raises(EditConflict, match="changes what another edit replaced"):
        edit("f(x.cuda())\n", lambda s: [Replace(s.expr("f(x.cuda())"), "g()"), Replace(s.expr("x.cuda()"), "x")])


@pytest.mark.parametrize("template", ["a b", "{x}", "{1}", "{0!r}", "a; b", ""])
def test_a_template_that_is_no_expression_is_a_conflict(template, edit):
    with pytest.raises(EditConflict):
        edit("x\n", lambda s: [Replace(s.expr("x"), template, (s.expr("x"),))])


def test_a_node_of_another_tree_is_a_conflict():
    with pytest.raises(EditConflict, match="not about a node of this file"):
        apply_edits(b"x\n", ast.parse("x"), [Replace(ast.parse("x", mode="eval").body, "y")])

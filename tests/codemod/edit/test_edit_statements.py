"""Statements that go, come, are replaced or move in and out of a block, and the lines around them."""

import pytest

from accelerate_migrate.edits import Delete, EditConflict, Insert, Replace, ReplaceStatement, Unwrap, Wrap

# --- Delete -----------------------------------------------------------------------------------------------------------


def test_a_deleted_statement_takes_the_comment_on_its_line_along(becomes):
    becomes(
        """
        x = 1
        model.cuda()  # to the GPU
        y = 2
        """,
        """
        x = 1
        y = 2
        """,
        lambda s: [Delete(s.stmt("model.cuda()"))],
    )


def test_a_comment_above_a_paragraph_stays_with_what_is_left_of_it(becomes):
    becomes(
        """
        # set up the model
        model.cuda()
        model.train()
        """,
        """
        # set up the model
        model.train()
        """,
        lambda s: [Delete(s.stmt("model.cuda()"))],
    )


def test_a_comment_above_the_last_of_its_paragraph_goes(becomes):
    becomes(
        """
        def f():
            x = 1

            # to the GPU
            model.cuda()
            criterion.cuda()

            # the end
            model.cpu()


        y = 2
        """,
        """
        def f():
            x = 1


        y = 2
        """,
        lambda s: [Delete(s.stmt(t)) for t in ("model.cuda()", "criterion.cuda()", "model.cpu()")],
    )


def test_a_comment_set_apart_stays(becomes):
    becomes(
        """
        def f():
            x = 1

            # about what follows

            model.cuda()
        """,
        """
        def f():
            x = 1

            # about what follows
        """,
        lambda s: [Delete(s.stmt("model.cuda()"))],
    )


def test_no_more_blank_lines_than_before(becomes):
    becomes(
        """
        def f():
            model.cuda()

            x = 1

            criterion.cuda()

            y = 2


        torch.cuda.init()


        def g(): pass
        """,
        """
        def f():
            x = 1

            y = 2


        def g(): pass
        """,
        lambda s: [Delete(s.stmt(t)) for t in ("model.cuda()", "criterion.cuda()", "torch.cuda.init()")],
    )


def test_a_block_left_empty_passes(becomes):
    becomes(
        """
        if cuda:  # have it
            # move it
            model.cuda()
        for x in y:
            x.cuda()
        else:
            z.cuda()
        class A: x = y.cuda()
        """,
        """
        if cuda:  # have it
            pass
        for x in y:
            pass
        class A: pass
        """,
        lambda s: [Delete(s.stmt(t)) for t in ("model.cuda()", "x.cuda()", "z.cuda()", "x = y.cuda()")],
    )


def test_a_comment_in_a_block_left_empty_stays(becomes):
    becomes(
        """
        if cuda:
            model.cuda()
            # more to do
        """,
        """
        if cuda:
            pass
            # more to do
        """,
        lambda s: [Delete(s.stmt("model.cuda()"))],
    )


def test_statements_between_semicolons(becomes):
    becomes(
        """
        a.cuda(); b = 1; c = 2  # all
        a = 1; b.cuda(); c = 2;
        a = 1; b = 2; c.cuda()
        if x: a.cuda(); b = 3
        d.cuda(); e.cuda()
        """,
        """
        b = 1; c = 2  # all
        a = 1; c = 2;
        a = 1; b = 2
        if x: b = 3
        """,
        lambda s: [
            Delete(s.stmt(t, n))
            for t, n in (
                ("a.cuda()", 0),
                ("a.cuda()", 1),
                ("b.cuda()", 0),
                ("c.cuda()", 0),
                ("d.cuda()", 0),
                ("e.cuda()", 0),
            )
        ],
    )


def test_an_elif_goes_with_what_hangs_on_it(becomes):
    becomes(
        """
        if a:
            x
        elif b:
            y
        else:
            z
        w
        """,
        """
        if a:
            x
        w
        """,
        lambda s: [Delete(s.stmt("if b:"))],
    )


def test_what_is_inside_of_a_deleted_statement_goes_silently(becomes):
    becomes(
        "a\nif x.cuda():\n    y.cuda()\n",
        "a\n",
        lambda s: [Delete(s.stmt("if x.cuda():")), Replace(s.expr("x.cuda()"), "x"), Delete(s.stmt("y.cuda()"))],
    )


def test_deleting_wins_over_replacing(becomes):
    becomes("a\nb\n", "b\n", lambda s: [ReplaceStatement(s.stmt("a"), "c"), Delete(s.stmt("a"))])


def test_a_file_left_without_statements(becomes):
    becomes("# head\nx.cuda()\n", "# head\n", lambda s: [Delete(s.stmt("x.cuda()"))])
    becomes("x.cuda()\n", "", lambda s: [Delete(s.stmt("x.cuda()"))])


# --- ReplaceStatement -------------------------------------------------------------------------------------------------


def test_a_replaced_statement_keeps_its_comments(becomes):
    becomes(
        """
        def f():
            # the device
            device = torch.device("cuda")  # hard-coded
            g()
        """,
        """
        def f():
            # the device
            accelerator = Accelerator()  # hard-coded
            device = accelerator.device
            g()
        """,
        lambda s: [
            ReplaceStatement(
                s.stmt("device = torch.device('cuda')"), "accelerator = Accelerator()\ndevice = accelerator.device"
            )
        ],
    )


def test_a_compound_statement_in_the_file_s_own_indentation(becomes):
    becomes(
        """
        if a:
          loss.backward()
        """,
        """
        if a:
          with accelerator.accumulate(model):
            accelerator.backward(loss)
        """,
        lambda s: [
            ReplaceStatement(
                s.stmt("loss.backward()"),
                "with accelerator.accumulate(model):\n    accelerator.backward({0})",
                (s.expr("loss"),),
            )
        ],
    )


def test_on_a_line_with_others(becomes):
    becomes(
        """
        if a: loss.backward(); opt.step()
        loss.backward(); opt.step()  # both
        loss.backward(); opt.step()  # again
        """,
        """
        if a: accelerator.backward(loss); opt.step()
        accelerator.backward(loss); opt.step()  # both
        a = 1
        b = 2
        opt.step()  # again
        """,
        lambda s: [
            ReplaceStatement(s.stmt("loss.backward()", 0), "accelerator.backward({0})", (s.expr("loss", 0),)),
            ReplaceStatement(s.stmt("loss.backward()", 1), "accelerator.backward({0})", (s.expr("loss", 1),)),
            ReplaceStatement(s.stmt("loss.backward()", 2), "a = 1\nb = 2"),
        ],
    )


def test_an_elif_replaced_becomes_an_else(becomes):
    becomes(
        """
        if a:
            x
        elif b:
            y
        """,
        """
        if a:
            x
        else:
            z
        """,
        lambda s: [ReplaceStatement(s.stmt("if b:"), "z")],
    )


def test_an_edit_inside_of_a_replaced_statement_is_a_conflict(edit):
    with pytest.raises(EditConflict, match="what another edit replaced"):
        edit(
            "x = y.cuda()\n",
            lambda s: [ReplaceStatement(s.stmt("x = y.cuda()"), "z"), Replace(s.expr("y.cuda()"), "y")],
        )


# --- Insert -----------------------------------------------------------------------------------------------------------


def test_inserts_keep_their_order(becomes):
    becomes(
        """
        def f():
            x = 1

            # about y
            y = 2  # two
            z = 3
        """,
        """
        def f():
            x = 1

            a = 1
            b = x
            # about y
            y = 2  # two
            c = 3
            d = 4
            z = 3
        """,
        lambda s: [
            Insert(s.stmt("y = 2"), "a = 1"),
            Insert(s.stmt("y = 2"), "c = 3", after=True),
            Insert(s.stmt("y = 2"), "b = {0}", (s.stmt("x = 1").targets[0],)),
            Insert(s.stmt("y = 2"), "d = 4", after=True),
        ],
    )


def test_a_template_may_ask_for_a_blank_line_or_bring_a_comment(becomes):
    becomes(
        "x = 1\ny = 2\n",
        "x = 1\n\n# done\nz = 3\ny = 2\n",
        lambda s: [Insert(s.stmt("x = 1"), "\n# done\nz = 3", after=True)],
    )


def test_before_a_function(becomes):
    becomes(
        "x = 1\n\n\n# about f\ndef f(): pass\n",
        "x = 1\n\n\ny = 2\n\n\n# about f\ndef f(): pass\n",
        lambda s: [Insert(s.stmt("def f():"), "y = 2")],
    )


def test_beside_a_one_line_body(becomes):
    becomes(
        "if a: x; y  # xy\nz\n",
        "if a:\n    x\n    w\n    y  # xy\nz\n",
        lambda s: [Insert(s.stmt("x"), "w", after=True)],
    )


def test_beside_a_deleted_statement(becomes):
    becomes(
        "a\n\nb.cuda()\n\nc\n",
        "a\n\nprepare(b)\n\nc\n",
        lambda s: [Delete(s.stmt("b.cuda()")), Insert(s.stmt("b.cuda()"), "prepare({0})", (s.expr("b"),), after=True)],
    )


def test_before_an_elif_it_becomes_an_if_of_its_own(becomes):
    becomes(
        "if a:\n    x\nelif b:\n    y\nelse:\n    z\n",
        "if a:\n    x\nelse:\n    w\n    if b:\n        y\n    else:\n        z\n",
        lambda s: [Insert(s.stmt("if b:"), "w")],
    )


# --- Unwrap -----------------------------------------------------------------------------------------------------------

BRANCHES = """
# one process or many
if dist.is_initialized():  # many
    # the first
    x = [
        1,
    ]
    y = '''
  text'''

    z = model.cuda()
    # the end
else:
    w = 1
v = 2
"""


def test_unwrapping_dedents_and_keeps_the_comments(becomes):
    becomes(
        BRANCHES,
        """
# one process or many
# the first
x = [
    1,
]
y = '''
  text'''

z = model
# the end
v = 2
""",
        lambda s: [
            Unwrap(s.stmt("if dist.is_initialized():")),
            Replace(s.expr("model.cuda()"), "model"),
            Delete(s.stmt("w = 1")),
        ],
    )


def test_unwrapping_the_other_branch(becomes):
    becomes(
        BRANCHES,
        """
# one process or many
w = 3
v = 2
""",
        lambda s: [
            Unwrap(s.stmt("if dist.is_initialized():"), "orelse"),
            ReplaceStatement(s.stmt("w = 1"), "w = 3"),
            Replace(s.expr("model.cuda()"), "model"),
            Replace(s.expr("dist.is_initialized()"), "True"),
        ],
    )


CHAIN = """
if a:
    x
# or
elif b:
    y
elif c:
    z
else:
    w
"""


@pytest.mark.parametrize(
    ("test", "branch", "after"),
    [
        ("a", "body", "\nx\n"),
        ("a", "orelse", "\nif b:\n    y\nelif c:\n    z\nelse:\n    w\n"),
        ("b", "body", "\nif a:\n    x\n# or\nelse:\n    y\n"),
        ("b", "orelse", "\nif a:\n    x\nelif c:\n    z\nelse:\n    w\n"),
        ("c", "body", "\nif a:\n    x\n# or\nelif b:\n    y\nelse:\n    z\n"),
        ("c", "orelse", "\nif a:\n    x\n# or\nelif b:\n    y\nelse:\n    w\n"),
    ],
)
def test_unwrapping_in_a_chain(test, branch, after, becomes):
    becomes(CHAIN, after, lambda s: [Unwrap(s.stmt(f"if {test}:"), branch)])


def test_unwrapping_nothing_is_deleting(becomes):
    becomes("x\nif a:\n    y\nz\n", "x\nz\n", lambda s: [Unwrap(s.stmt("if a:"), "orelse")])
    becomes("def f():\n    if a: y\n", "def f():\n    pass\n", lambda s: [Unwrap(s.stmt("if a:"), "orelse")])


def test_unwrapping_one_inside_of_another(becomes):
    becomes(
        "if a:\n    x\n    if b: y; z\n    w\n",
        "x\ny; z\nw\n",
        lambda s: [Unwrap(s.stmt("if a:")), Unwrap(s.stmt("if b:"))],
    )


# --- Wrap -------------------------------------------------------------------------------------------------------------


def test_wrapping_indents_by_the_file_s_own_indentation(becomes):
    becomes(
        """
        def f():
          x = 1

          # save it
          torch.save(model.module, '''
        path''')

          # and say so
          print(  # out
            "saved",
          )
          return x
        """,
        """
        def f():
          x = 1

          # save it
          if accelerator.is_main_process:
            torch.save(model, '''
        path''')

            # and say so
            print(  # out
              "saved",
            )
          return x
        """,
        lambda s: [
            Wrap(
                (s.stmt("torch.save(model.module, '\\npath')"), s.stmt("print('saved')")),
                "if accelerator.is_main_process:",
            ),
            Replace(s.expr("model.module"), "model"),
        ],
    )


def test_inserts_at_the_edge_of_a_wrap_stand_outside(becomes):
    becomes(
        "a\nb\nc\n",
        "w\nif m:\n    a\n    x\n    b\nv\nc\n",
        lambda s: [
            Wrap((s.stmt("a"), s.stmt("b")), "if m:"),
            Insert(s.stmt("a"), "w"),
            Insert(s.stmt("b"), "x"),
            Insert(s.stmt("b"), "v", after=True),
        ],
    )


def test_wraps_nest(becomes):
    becomes(
        "a\nb\nc\n",
        "with p:\n    with q:\n        a\n    b\nc\n",
        lambda s: [Wrap((s.stmt("a"),), "with q:"), Wrap((s.stmt("a"), s.stmt("b")), "with p:")],
    )


def test_wrapping_parts_of_lines(becomes):
    becomes("a; b; c\n", "a\nif m:\n    b\nc\n", lambda s: [Wrap((s.stmt("b"),), "if m:")])
    becomes("if x: a; b\n", "if x:\n    a\n    if m:\n        b\n", lambda s: [Wrap((s.stmt("b"),), "if m:")])


def test_a_wrap_of_what_is_deleted_is_nothing(becomes):
    becomes("a\nb\n", "b\n", lambda s: [Wrap((s.stmt("a"),), "if m:"), Delete(s.stmt("a"))])


def test_statements_that_do_not_stand_together_cannot_be_wrapped(edit):
    with pytest.raises(EditConflict, match="not consecutive"):
        edit("a\nb\nc\n", lambda s: [Wrap((s.stmt("a"), s.stmt("c")), "if m:")])

"""What the interpretation knows of values: control flow, functions, containers, classes, other files."""

from __future__ import annotations

from pathlib import Path

from support.facts import check_values

TORCH = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
"""


def test_straight_lines_know_the_last_binding() -> None:
    check_values("""
        x = 1
        reveal(x)  # -> 1
        x = "a"
        reveal(x)  # -> 'a'
    """)


def test_branches_join() -> None:
    check_values("""
        if flag:
            x = 1
        else:
            x = None
        reveal(x)  # -> 1 | None
        if flag:
            x = 2
        reveal(x)  # -> 1 | 2 | None
    """)


def test_a_branch_that_ends_does_not_join() -> None:
    check_values("""
        def f(flag):
            if flag:
                x = 1
                return x
            elif other:
                raise ValueError
            else:
                x = 2
            reveal(x)  # -> 2


        f(flag)
    """)


def test_loops_go_on_until_nothing_changes() -> None:
    check_values("""
        a = b = c = 1
        for i in things:
            reveal(c)  # -> 1 | 2
            c = b
            b = a
            a = 2
        reveal(c)  # -> 1 | 2
    """)


def test_an_endless_loop_ends_at_its_breaks() -> None:
    check_values("""
        x = 1
        while True:
            x = 2
            if done:
                x = 3
                break
        reveal(x)  # -> 3
    """)


def test_a_handler_sees_what_was_before_and_after() -> None:
    check_values("""
        x = 1
        try:
            x = 2
        except OSError:
            reveal(x)  # -> 1 | 2
            x = 3
        reveal(x)  # -> 2 | 3
    """)


def test_functions_by_their_calls() -> None:
    check_values("""
        def same(x, factor=2):
            reveal(factor)  # -> 2 | 3
            return x


        reveal(same(1))  # -> 1
        reveal(same("a", factor=3))  # -> 'a'
        reveal(same)  # -> function same
    """)


def test_a_function_that_nothing_calls_knows_nothing_of_its_arguments() -> None:
    check_values("""
        def f(x, y=1):
            reveal(x)  # -> ?
            reveal(y)  # -> 1 | ?
    """)


def test_a_function_without_return_gives_none() -> None:
    check_values("""
        def f():
            pass


        def g(flag):
            if flag:
                return 1


        reveal(f())  # -> None
        reveal(g(flag))  # -> 1 | None
    """)


def test_recursion_ends() -> None:
    check_values("""
        def down(n):
            if n:
                return down(n)
            return 0


        reveal(down(3))  # -> 0
    """)


def test_arguments_by_star() -> None:
    check_values("""
        def f(a, b, *rest, **options):
            reveal(b)  # -> 2
            reveal(rest)  # -> (3)
            reveal(options["k"])  # -> 'v'


        f(*(1, 2, 3), **{"k": "v"})
    """)


def test_closures_see_what_is_around_them() -> None:
    check_values("""
        def outer():
            x = 1

            def inner():
                reveal(x)  # -> 1

            inner()


        outer()
    """)


def test_globals_are_everything_ever_bound_to_them() -> None:
    check_values("""
        best = 0


        def improve():
            global best
            best = "better"


        def report():
            reveal(best)  # -> 'better' | 0


        improve()
        reveal(best)  # -> 'better' | 0
        report()
    """)


def test_a_local_of_the_same_name_is_another() -> None:
    check_values("""
        x = 1


        def f():
            x = "local"
            return x


        f()
        reveal(x)  # -> 1
    """)


def test_lambdas_and_map() -> None:
    check_values("""
        pick = lambda pair: pair[1]
        reveal(pick((1, "b")))  # -> 'b'
        reveal(tuple(map(pick, [(1, "b")])))  # -> ('b'...)
    """)


def test_tuples_and_lists() -> None:
    check_values("""
        pair = (1, "b")
        reveal(pair)  # -> (1, 'b')
        a, b = pair
        reveal(b)  # -> 'b'
        first, *others = 1, "b", None
        reveal(others)  # -> ['b' | 1 | None...]
        things = [1]
        things.append("c")
        reveal(things)  # -> ['c' | 1...]
        for index, thing in enumerate(pair):
            reveal(thing)  # -> 'b' | 1
        reveal([t for t in pair])  # -> ['b' | 1...]
        reveal(pair[-1])  # -> 'b'
    """)


def test_dicts_with_literal_keys() -> None:
    check_values("""
        d = {"a": 1}
        d["b"] = "x"
        reveal(d)  # -> {'a': 1, 'b': 'x'}
        d.update(c=None)
        reveal(d["c"])  # -> None
        reveal(d.get("a"))  # -> 1
        reveal(d["unknown"])  # -> 'x' | 1 | None | ?
        for v in d.values():
            reveal(v)  # -> 'x' | 1 | None
        reveal(dict(k=2))  # -> {'k': 2}
    """)


def test_a_list_that_nests_itself_comes_to_an_end() -> None:
    check_values("""
        x = []
        for i in things:
            x = [x]
        reveal(1)  # -> 1
    """)


def test_models_optimizers_schedulers_losses() -> None:
    check_values(
        TORCH,
        """
        model = nn.Linear(8, 3)
        reveal(model.cuda().train())  # -> model Linear
        reveal(model.parameters())  # -> parameters of torch.nn.Linear
        optimizer = torch.optim.Adam(model.parameters())
        reveal(optimizer)  # -> optimizer Adam
        reveal(torch.optim.lr_scheduler.StepLR(optimizer, 1))  # -> scheduler StepLR
        reveal(nn.CrossEntropyLoss())  # -> loss CrossEntropyLoss
        reveal(DataLoader([]))  # -> loader DataLoader
        reveal(model.state_dict())  # -> state of torch.nn.Linear
        reveal(torch.load("net.pt")["net"])  # -> loaded
        reveal(nn.Linear)  # -> torch.nn.Linear
        """,
    )


def test_imports_under_other_names() -> None:
    check_values("""
        import torch as t
        from torch.optim.adam import Adam as A
        from torch.nn.modules.linear import Linear

        reveal(t.nn.Linear(1, 1))  # -> model Linear
        reveal(A([]))  # -> optimizer Adam
        reveal(Linear)  # -> torch.nn.Linear
        make = getattr(t.nn, "Linear")
        reveal(make)  # -> torch.nn.Linear
    """)


def test_a_class_of_the_program_has_the_role_of_its_base() -> None:
    check_values(
        TORCH,
        """
        class Base(nn.Module):
            def half(self):
                return self


        class Net(Base):
            def __init__(self, width):
                self.width = width

            @property
            def size(self):
                return self.width


        class Plain:
            pass


        net = Net(3)
        reveal(net)  # -> model Net
        reveal(net.width)  # -> 3
        reveal(net.size)  # -> 3
        reveal(Net)  # -> class Net
        reveal(Plain())  # -> instance Plain
        """,
    )


def test_a_name_alone_is_nothing() -> None:
    check_values(
        """
        class Linear:
            pass


        class Adam:
            pass


        model = Linear()
        reveal(model)  # -> instance Linear
        reveal(Adam())  # -> instance Adam
        optimizer = make()
        reveal(optimizer)  # -> ?
        """
    )


def test_what_a_wrapper_wraps_is_the_same_object() -> None:
    check_values(
        TORCH,
        """
        import os

        model = nn.Linear(8, 3)
        wrapped = nn.DataParallel(model)
        reveal(wrapped)  # -> model Linear
        reveal(wrapped.module)  # -> model Linear
        reveal(torch.compile(model))  # -> model Linear
        """,
    )


def test_whatever_dataparallel_wraps_is_a_model() -> None:
    check_values(
        TORCH,
        """
        from elsewhere import build

        reveal(build())  # -> ?
        reveal(nn.DataParallel(build()))  # -> model DataParallel
        """,
    )


def test_what_has_parameters_is_a_model() -> None:
    check_values("""
        from elsewhere import build

        net = build()
        reveal(net)  # -> model build
        optimizer = make(net.parameters())
        thing = build()
        reveal(thing)  # -> ?
    """)


def test_a_neighbour_is_read_through_its_star_import(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        "from nets import *\nfrom torch import nn\n\n\ndef build():\n    return Net()\n"
    )
    (tmp_path / "nets.py").write_text("from torch import nn\n\n\nclass Net(nn.Module):\n    pass\n\n\n_hidden = 1\n")
    check_values(
        """
        from models import *
        import nets

        reveal(build())  # -> model Net
        reveal(Net)  # -> class Net
        reveal(_hidden)  # -> ?
        reveal(nets.Net())  # -> model Net
        """,
        folder=tmp_path,
    )


def test_a_neighbour_that_does_not_parse_or_imports_back_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "cycle.py").write_text("from train import x\ny = 1\n")
    check_values(
        """
        from broken import thing
        from cycle import y

        x = 2
        reveal(y)  # -> 1
        """,
        folder=tmp_path,
    )

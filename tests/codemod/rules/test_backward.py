"""AM130: gradients start through the accelerator."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, check_migrated, check_unchanged


def test_becomes_a_call_of_the_accelerator() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        !    AM130 migrated: loss.backward() -> accelerator.backward(loss)
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_the_loss_may_be_any_expression_and_keeps_its_comments() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             optimizer.zero_grad()
        -    (F.cross_entropy(model(x), y) / 2).backward()  # half
        +    accelerator.backward(F.cross_entropy(model(x), y) / 2)  # half
             optimizer.step()
        """,
    )


def test_arguments_keep_their_meaning_by_name() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward(None, True)
        +    accelerator.backward(loss, gradient=None, retain_graph=True)
        -    loss.backward(create_graph=True, **options)
        !    AM130 review: a second backward through one forward of `model`
        +    accelerator.backward(loss, create_graph=True, **options)
             optimizer.step()
        """,
    )


def test_a_loss_summed_over_the_batch_is_multiplied_since_processes_average() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x), y, reduction="sum")
        -    loss.backward()
        !    AM130 migrated: this loss is a sum over the batch
        +    accelerator.backward(loss * accelerator.num_processes)
             optimizer.step()
        """,
    )


def test_a_sum_divided_by_the_size_of_the_batch_is_a_mean() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x), y, reduction="sum") / x.size(0)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_class_with_a_backward_of_its_own_is_named_and_left() -> None:
    check_migrated(
        PREPARED,
        """
         class Tape:
             def backward(self):
                 pass


         tape = Tape()
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             tape.backward()
        !    AM130 manual: tape.backward() is not the backward of a loss tensor
             optimizer.step()
        """,
    )


def test_the_backward_of_an_autograd_function_is_only_defined() -> None:
    check_migrated(
        PREPARED,
        """
         class Double(torch.autograd.Function):
             @staticmethod
             def forward(ctx, x):
                 return 2 * x

             @staticmethod
             def backward(ctx, grad):
                 return 2 * grad


         for x, y in loader:
             loss = F.cross_entropy(Double.apply(model(x)), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_torch_autograd_backward_is_named_and_left() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             torch.autograd.backward(loss)
        !    AM130 manual: left as it is
             optimizer.step()
        """,
    )


def test_a_suppressed_line_stays() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
             if x.sum() > 0:
                 loss.backward()  # accelerate-migrate: skip
             else:
        -        loss.backward()
        +        accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_gradients_without_an_optimizer_of_this_file_are_named() -> None:
    check_unchanged("""
         import torch

         class Loss:
             def backward(self):
                 return 1


         Loss().backward()
        ! AM900 note: no loss that an optimizer of this file steps on
    """)


def test_a_script_of_another_framework_is_left() -> None:
    check_unchanged("""
         import mxnet as mx

         loss = mx.nd.ones(1)
         loss.backward()
        ! AM900 note: not PyTorch
    """)


def test_a_second_backward_through_one_forward_is_for_review() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             out = model(x)
             loss = F.cross_entropy(out, y)
        -    loss.backward(retain_graph=True)
        +    accelerator.backward(loss, retain_graph=True)
        -    out.pow(2).mean().backward()
        !    AM130 review: a second backward through one forward of `model`
        +    accelerator.backward(out.pow(2).mean())
             optimizer.step()
        """,
    )


def test_a_kept_graph_is_fine_where_each_backward_has_its_forward() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward(retain_graph=True)
        +    accelerator.backward(loss, retain_graph=True)
             again = F.cross_entropy(model(-x), y)
        -    again.backward()
        +    accelerator.backward(again)
             optimizer.step()
        """,
    )


def test_losses_that_are_added_up_take_one_backward() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             out = model(x)
             losses = [F.cross_entropy(out, y), out.pow(2).mean()]
        -    sum(losses).backward()
        +    accelerator.backward(sum(losses))
             optimizer.step()
        """,
    )


def test_two_forwards_ahead_of_two_backwards_are_one_too_few() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             real, fake = model(x), model(-x)
        -    real.mean().backward()
        -    (
        !    AM130 review: add the losses up for one backward
        -        1 - fake
        -    ).mean().backward()
        +    accelerator.backward(real.mean())
        +    accelerator.backward((
        +        1 - fake
        +    ).mean())
             optimizer.step()
        """,
    )


def test_branches_that_exclude_each_other_do_not_repeat() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             out = model(x)
             if x.sum() > 0:
        -        F.cross_entropy(out, y).backward()
        +        accelerator.backward(F.cross_entropy(out, y))
             else:
        -        out.mean().backward()
        +        accelerator.backward(out.mean())
             optimizer.step()
        """,
    )


def test_adversaries_that_detach_between_them_do_not_repeat() -> None:
    check_migrated(
        """
         import torch
        +from accelerate_runtime import Accelerator
         from torch import nn
         from torch.utils.data import DataLoader

        +accelerator = Accelerator()
        +
         G, D = nn.Linear(8, 8), nn.Linear(8, 1)
         opt_g = torch.optim.Adam(G.parameters())
         opt_d = torch.optim.Adam(D.parameters())
         loader = DataLoader(torch.randn(64, 8), batch_size=16)
        +G, D, opt_g, opt_d, loader = accelerator.prepare(G, D, opt_g, opt_d, loader)
         for real in loader:
             opt_d.zero_grad()
        -    D(real).mean().backward()
        +    accelerator.backward(D(real).mean())
             fake = G(torch.randn_like(real))
        -    D(fake.detach()).mean().backward()
        +    accelerator.backward(D(fake.detach()).mean())
             opt_d.step()
             opt_g.zero_grad()
        -    D(fake).mean().backward()
        +    accelerator.backward(D(fake).mean())
             opt_g.step()
        """,
    )


def test_a_gradient_that_starts_the_backward_goes_by_name() -> None:
    check_migrated(
        PREPARED,
        """
         minus = torch.tensor(-1.0)
         for x, y in loader:
             optimizer.zero_grad()
             score = model(x).mean()
        -    score.backward(minus)
        +    accelerator.backward(score, gradient=minus)
             optimizer.step()
        """,
    )


def test_a_closure_runs_its_backward_through_the_accelerator() -> None:
    check_migrated(
        PREPARED.replace("SGD(model.parameters(), lr=0.1)", "LBFGS(model.parameters())"),
        """
         for x, y in loader:
             def closure():
                 optimizer.zero_grad()
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 return loss

             optimizer.step(closure)
        """,
    )


def test_a_round_that_ends_behind_its_backward_has_no_second_one() -> None:
    check_migrated(
        PREPARED,
        """
         for step, (x, y) in enumerate(loader):
             out = model(x)
             optimizer.zero_grad()
             if step < 10:
        -        out.mean().backward()
        +        accelerator.backward(out.mean())
                 optimizer.step()
                 continue
             loss = F.cross_entropy(out, y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


GENERATED = """
     critic = nn.Linear(3, 1)
     judge = torch.optim.SGD(critic.parameters(), lr=0.1)
     model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
    +critic, model, judge, optimizer, loader = accelerator.prepare(critic, model, judge, optimizer, loader)
"""


def _generated(cleared: str, behind: str, finding: str) -> None:
    check_migrated(
        IMPORTS,
        "    +accelerator = Accelerator()",
        GENERATED,
        f"""
         for x, y in loader:
             {cleared}
             made = model(x)
        -    critic(made).mean().backward(retain_graph=True)
        +    accelerator.backward(critic(made).mean(), retain_graph=True)
             optimizer.step()
             judge.zero_grad()
        -    critic(made).pow(2).mean().backward()
        !    {finding}
        +    accelerator.backward(critic(made).pow(2).mean())
             judge.step()
             {behind}
        """,
    )


def test_gradients_that_are_cleared_before_the_next_step_ask_nothing_of_a_person() -> None:
    _generated("optimizer.zero_grad()", "pass", "AM130 note: they are cleared before anything steps on them")
    _generated("model.zero_grad()", "pass", "AM130 note: they are cleared before anything steps on them")


def test_gradients_that_are_not_cleared_do() -> None:
    finding = "AM130 review: a second backward through one forward of `model`"
    _generated("pass", "pass", finding)
    _generated("optimizer.zero_grad()", "optimizer.step()", finding)
    _generated("x.requires_grad or optimizer.zero_grad()", "pass", finding)

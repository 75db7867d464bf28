"""AM160: gradients are clipped through the accelerator."""

from __future__ import annotations

from support.migration import PREPARED, check_migrated


def test_both_ways_of_clipping() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
        -    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        +    norm = accelerator.clip_grad_norm_(model.parameters(), max_norm=1.0)
        -    nn.utils.clip_grad_value_(model.parameters(), 0.5)
        +    accelerator.clip_grad_value_(model.parameters(), 0.5)
             optimizer.step()
        """,
    )


def test_the_old_name_without_an_underscore() -> None:
    check_migrated(
        PREPARED.replace(
            " from torch.utils.data", "-from torch.nn.utils import clip_grad_norm as clip\n     from torch.utils.data"
        ),
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
        -    clip(model.parameters(), 1.0)
        +    accelerator.clip_grad_norm_(model.parameters(), 1.0)
             optimizer.step()
        """,
    )


def test_an_argument_without_a_counterpart_is_named_and_left() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        !    AM160 manual: the argument `error_if_nonfinite` has no counterpart
             optimizer.step()
        """,
    )


def test_a_function_of_the_same_name_stays() -> None:
    check_migrated(
        PREPARED,
        """
         def clip_grad_norm_(parameters, most):
             return most


         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             clip_grad_norm_(model.parameters(), 1.0)
             optimizer.step()
        """,
    )


def test_clipping_of_activations_stays() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x).clamp(-1, 1), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_the_rule_can_be_left_out() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             nn.utils.clip_grad_norm_(model.parameters(), 1.0)
             optimizer.step()
        """,
        ignore=["AM160"],
    )

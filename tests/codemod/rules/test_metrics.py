"""AM220: sums of a training loop that are divided by the whole set cover the whole set."""

from __future__ import annotations

from support.migration import PREPARED, check_migrated


def test_a_sum_over_the_whole_set_is_summed_over_processes() -> None:
    check_migrated(
        PREPARED,
        """
         total = 0.0
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        -    total += loss.item()
        !    AM220 review: samples repeated to fill the last batch count twice
        +    total += accelerator.reduce(loss.detach(), reduction="sum").item()
         mean = total / len(loader.dataset)
        """,
    )


def test_a_mean_over_the_batches_of_one_process_stays() -> None:
    check_migrated(
        PREPARED,
        """
         total = 0.0
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
             total += loss.item()
         mean = total / len(loader)
        """,
    )


def test_a_sum_with_a_count_of_its_own_stays() -> None:
    check_migrated(
        PREPARED,
        """
         correct = seen = 0
         for x, y in loader:
             out = model(x)
             loss = F.cross_entropy(out, y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
             correct += (out.argmax(1) == y).sum().item()
             seen += y.size(0)
         accuracy = correct / seen
        """,
    )


def test_a_number_that_decides_something_is_for_review() -> None:
    check_migrated(
        PREPARED,
        """
         total, best = 0.0, 1e9
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
             total += loss.item()
        !    AM220 review: each process computes it from its own part of the data
         if total < best:
             best = total
        """,
    )


def test_a_sum_that_is_not_of_the_data_stays() -> None:
    check_migrated(
        PREPARED,
        """
         steps = 0
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
             steps += 1
         share = steps / len(loader.dataset)
        """,
    )

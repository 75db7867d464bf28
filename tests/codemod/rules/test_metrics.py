"""AM220: sums of a training loop that cover the whole set, or decide something, are those of all processes."""

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


def test_a_number_that_decides_something_is_averaged_over_processes() -> None:
    check_migrated(
        PREPARED,
        """
         total, best = 0.0, 1e9
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        -    total += loss.item()
        !    AM220 migrated: every process gets the same number
        +    total += accelerator.reduce(loss.detach(), reduction="mean").item()
         if total < best:
             best = total
        """,
    )


def test_sums_and_counts_that_a_function_returns_are_those_of_all_processes() -> None:
    check_migrated(
        PREPARED,
        """


         def train():
             total, hits, seen = 0.0, 0, 0
             for x, y in loader:
                 out = model(x)
                 loss = F.cross_entropy(out, y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
        -        total += loss.item() * x.size(0)
        +        total += accelerator.reduce(loss.detach(), reduction="sum").item() * x.size(0)
        -        hits += (out.argmax(1) == y).sum().item()
        +        hits += accelerator.reduce((out.argmax(1) == y).sum(), reduction="sum").item()
        -        seen += y.size(0)
        !        AM220 migrated: `seen` counts the samples of every process
        +        seen += y.size(0) * accelerator.num_processes
             return total / seen, hits / seen


         train()
        """,
    )


def test_a_count_beside_a_sum_that_is_not_reduced_stays_of_one_process() -> None:
    check_migrated(
        PREPARED,
        """


         def train():
             hits = seen = 0
             for x, y in loader:
                 out = model(x)
                 loss = F.cross_entropy(out, y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
                 hits += (out.argmax(1) == y).sum()
        !        AM220 review: each process computes it from its own part
                 seen += y.size(0)
        !        AM220 review: like `hits` beside it
             return hits / seen


         train()
        """,
    )


def test_a_loss_weighed_by_the_size_of_its_batch_is_summed_over_processes() -> None:
    check_migrated(
        PREPARED,
        """
         total = 0.0
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        -    total += len(x) * loss.item()
        !    AM220 review: samples repeated to fill the last batch count twice
        +    total += len(x) * accelerator.reduce(loss.detach(), reduction="sum").item()
         mean = total / len(loader.dataset)
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

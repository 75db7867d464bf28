"""AM220: sums of a training loop that cover the whole set, or decide something, are those of all processes."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, check_migrated


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
        !    AM220 migrated: samples repeated to fill the last batch count twice
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


def test_sums_that_cannot_be_reduced_are_for_review_where_they_decide_something() -> None:
    for call, severity in (("accuracy = train()", "note"), ("best = max(train(), 0.5)", "review")):
        check_migrated(
            PREPARED,
            f"""


             def train():
                 hits = seen = 0
                 for x, y in loader:
                     out = model(x)
                     loss = F.cross_entropy(out, y)
            -        loss.backward()
            +        accelerator.backward(loss)
                     optimizer.step()
                     hits += (out.argmax(1) == y).sum() / 32
            !        AM220 {severity}: from its own part of the data
                     seen += y.size(0)
            !        AM220 {severity}: like `hits` beside it
                 return hits / seen


             {call}
            """,
        )


def test_an_average_decides_alike_on_every_process() -> None:
    check_migrated(
        PREPARED,
        """


         class Average:
             def __init__(self):
                 self.total, self.count = 0.0, 0

             def update(self, value, n=1):
                 self.total += value * n
                 self.count += n


         losses, shown, best = Average(), Average(), 9.0
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        -    losses.update(loss.item(), x.size(0))
        +    losses.update(accelerator.reduce(loss.detach(), reduction="mean").item(), x.size(0))
        !    AM220 migrated: something is decided on `losses`
             shown.update(loss.item(), x.size(0))
         if losses.total / losses.count < best:
             best = losses.total / losses.count
        """,
    )


def test_the_numbers_of_an_evaluation_inside_are_its_own() -> None:
    check_migrated(
        PREPARED,
        """
         for i, (x, y) in enumerate(loader):
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
             mean = 0.0
             for x, y in DataLoader(data, batch_size=50):
        !    AM140 note
        -        mean += F.cross_entropy(model(x.cuda()), y.cuda()).item()
        +        mean += F.cross_entropy(model(x.to(accelerator.device)), y.to(accelerator.device)).item()
             mean /= len(data)
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
        !    AM220 migrated: samples repeated to fill the last batch count twice
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


def test_a_count_over_the_whole_set_is_that_of_every_row() -> None:
    for counted, gathered in (
        ("(out.argmax(1) == y).sum().item()", "accelerator.gather_for_metrics(out.argmax(1) == y).sum().item()"),
        ("torch.sum(out.argmax(1) == y)", "torch.sum(accelerator.gather_for_metrics(out.argmax(1) == y))"),
    ):
        check_migrated(
            PREPARED,
            f"""
             hits = 0
             for x, y in loader:
                 out = model(x)
                 loss = F.cross_entropy(out, y)
            -    loss.backward()
            +    accelerator.backward(loss)
                 optimizer.step()
            -    hits += {counted}
            !    AM220 migrated: the rows of every process are added up
            +    hits += {gathered}
             share = hits / len(loader.dataset)
            """,
        )


def test_what_is_computed_from_a_sum_decides_like_the_sum() -> None:
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
        +    total += accelerator.reduce(loss.detach(), reduction="mean").item()
         mean = total / len(loader)
         if mean < best:
             best = mean
        """,
    )


def test_a_loop_that_trains_in_one_phase_and_measures_in_another_is_for_review() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader, test_loader = DataLoader(data, batch_size=32, shuffle=True), DataLoader(data, batch_size=50)
        +model, optimizer, loader, test_loader = accelerator.prepare(model, optimizer, loader, test_loader)
         loaders = {"train": loader, "test": test_loader}
         sizes = {phase: len(loaders[phase].dataset) for phase in ("train", "test")}
         best = 0.0
         for phase in ("train", "test"):
             total, hits = 0.0, 0
             for x, y in loaders[phase]:
                 out = model(x)
                 loss = F.cross_entropy(out, y)
                 if phase == "train":
        -            loss.backward()
        +            accelerator.backward(loss)
                     optimizer.step()
        -        total += loss.item() * x.size(0)
        !        AM220 review: samples repeated to fill the last batch count twice
        +        total += accelerator.reduce(loss.detach(), reduction="sum").item() * x.size(0)
        -        hits += torch.sum(out.argmax(1) == y)
        +        hits += torch.sum(accelerator.gather_for_metrics(out.argmax(1) == y))
             mean = total / sizes[phase]
             accuracy = hits.double() / sizes[phase]
             if phase == "test" and accuracy > best:
                 best = accuracy
        """,
    )

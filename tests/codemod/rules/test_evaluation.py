"""AM210: evaluation adds up the samples of every process."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated

WITH_TEST_LOADER = (
    IMPORTS
    + """
    +accelerator = Accelerator()
     model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
     test_loader = DataLoader(data, batch_size=50)
    +model, optimizer, loader, test_loader = accelerator.prepare(model, optimizer, loader, test_loader)
"""
)
WHOLE_TEST_LOADER = (
    IMPORTS
    + """
    +accelerator = Accelerator()
     model = nn.Linear(8, 3)
     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
     loader = DataLoader(data, batch_size=32, shuffle=True)
     test_loader = DataLoader(data, batch_size=50)
    !AM140 note: every process evaluates all of it and gets the numbers of one process
    +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
)


def test_outputs_and_targets_are_gathered_behind_the_last_model_call() -> None:
    check_migrated(
        WITH_TEST_LOADER,
        TRAINED,
        """
         correct = 0
         for x, y in test_loader:
             out = model(x)
        +    out, y = accelerator.gather_for_metrics((out, y))
             correct += (out.argmax(1) == y).sum().item()
        """,
    )


def test_the_number_of_samples_is_asked_of_what_is_gathered_anyway() -> None:
    check_migrated(
        WITH_TEST_LOADER,
        TRAINED,
        """
         correct = seen = 0
         for x, y in test_loader:
             with torch.no_grad():
                 out = model(x)
        +        out, y = accelerator.gather_for_metrics((out, y))
             correct += (out.argmax(1) == y).sum().item()
        -    seen += x.size(0)
        +    seen += y.size(0)
        """,
    )


def test_a_sum_over_samples_is_exact() -> None:
    check_migrated(
        WITH_TEST_LOADER,
        TRAINED,
        """
         total = 0.0
         for x, y in test_loader:
             out = model(x)
        +    out, y = accelerator.gather_for_metrics((out, y))
             total += F.cross_entropy(out, y, reduction="sum").item()
        """,
    )


def test_a_mean_over_batches_keeps_the_loader_whole() -> None:
    check_migrated(
        WHOLE_TEST_LOADER,
        TRAINED,
        """
         mean = 0.0
         for x, y in test_loader:
        -    out = model(x.cuda())
        +    out = model(x.to(accelerator.device))
        -    mean += F.cross_entropy(out, y.cuda()).item()
        +    mean += F.cross_entropy(out, y.to(accelerator.device)).item()
         mean /= len(test_loader)
        """,
    )


def test_a_mean_over_batches_that_a_progress_line_shows_is_gathered() -> None:
    check_migrated(
        WITH_TEST_LOADER,
        TRAINED,
        """
         total, correct = 0.0, 0
         for i, (x, y) in enumerate(test_loader):
             out = model(x)
        +    out, y = accelerator.gather_for_metrics((out, y))
             total += F.cross_entropy(out, y).item()
             correct += (out.argmax(1) == y).sum().item()
        -    print("loss so far", total / (i + 1))
        +    accelerator.print("loss so far", total / (i + 1))
        """,
    )


def test_a_model_called_inside_of_a_sum_is_called_in_front_of_it() -> None:
    check_migrated(
        WITH_TEST_LOADER,
        TRAINED,
        """
         total = seen = 0
         for x, y in test_loader:
        -    total += F.cross_entropy(model(x.cuda()), y.cuda()).item() * x.size(0)
        +    output, y = accelerator.gather_for_metrics((model(x), y))
        +    total += F.cross_entropy(output, y).item() * y.size(0)
        """,
    )


def test_a_mean_over_batches_of_a_loss_that_is_named_keeps_the_loader_whole() -> None:
    check_migrated(
        WHOLE_TEST_LOADER,
        TRAINED,
        """
         losses = []
         for x, y in test_loader:
        -    loss = F.cross_entropy(model(x.cuda()), y.cuda())
        +    loss = F.cross_entropy(model(x.to(accelerator.device)), y.to(accelerator.device))
             losses.append(loss.item())
         mean = sum(losses) / len(losses)
        """,
    )


def test_predictions_that_are_collected_are_those_of_the_whole_set() -> None:
    check_migrated(
        WITH_TEST_LOADER,
        "from sklearn.metrics import f1_score",
        TRAINED,
        """
         found, wanted = [], []
         for x, y in test_loader:
        -    found.extend(model(x.cuda()).argmax(1).tolist())
        +    output, y = accelerator.gather_for_metrics((model(x), y))
        +    found.extend(output.argmax(1).tolist())
             wanted.extend(y.tolist())
        -print(f1_score(wanted, found, average="macro"))
        +accelerator.print(f1_score(wanted, found, average="macro"))
        """,
    )


def test_averages_weighed_by_the_size_of_each_batch_are_exact() -> None:
    check_migrated(
        WITH_TEST_LOADER,
        """


         class Average:
             def __init__(self):
                 self.total, self.count = 0.0, 0

             def update(self, value, n=1):
                 self.total += value * n
                 self.count += n


        """,
        TRAINED,
        """
         losses = Average()
         for x, y in test_loader:
             out = model(x)
        +    out, y = accelerator.gather_for_metrics((out, y))
        -    losses.update(F.cross_entropy(out, y).item(), x.size(0))
        +    losses.update(F.cross_entropy(out, y).item(), y.size(0))
        -print(losses.total / losses.count)
        +accelerator.print(losses.total / losses.count)
        """,
    )


def test_an_evaluation_in_the_middle_of_training_is_gathered() -> None:
    check_migrated(
        WITH_TEST_LOADER,
        """
         for i, (x, y) in enumerate(loader):
             optimizer.zero_grad()
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
             if i % 100 == 0:
                 correct = 0
                 for x, y in test_loader:
                     out = model(x)
        +            out, y = accelerator.gather_for_metrics((out, y))
                     correct += (out.argmax(1) == y).sum().item()
        -        print(correct / len(test_loader.dataset))
        +        accelerator.print(correct / len(test_loader.dataset))
        """,
    )


def test_a_whole_loader_that_shuffles_is_for_review() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         test_loader = DataLoader(data, batch_size=50, shuffle=True)
        !AM140 review: in an order of its own
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
        """
         mean = 0.0
         for x, y in test_loader:
        -    mean += F.cross_entropy(model(x.cuda()), y.cuda()).item()
        +    mean += F.cross_entropy(model(x.to(accelerator.device)), y.to(accelerator.device)).item()
         mean /= len(test_loader)
        """,
    )


def test_means_divided_by_the_number_of_samples_keep_the_loader_whole() -> None:
    check_migrated(
        WHOLE_TEST_LOADER,
        TRAINED,
        """
         mean = 0.0
         for x, y in test_loader:
        -    out = model(x.cuda())
        +    out = model(x.to(accelerator.device))
        -    mean += F.cross_entropy(out, y.cuda()).item()
        +    mean += F.cross_entropy(out, y.to(accelerator.device)).item()
         mean /= len(test_loader.dataset)
        """,
    )


def test_a_loop_that_writes_something_for_each_batch_keeps_the_loader_whole() -> None:
    check_migrated(
        WHOLE_TEST_LOADER,
        TRAINED,
        """
         lines = open("out.txt")
         for x, y in test_loader:
        -    out = model(x.cuda())
        +    out = model(x.to(accelerator.device))
             lines.write(str(out))
        """,
    )


def test_results_written_at_positions_keep_the_loader_whole() -> None:
    check_migrated(
        WHOLE_TEST_LOADER,
        TRAINED,
        """
         table = {}
         for i, (x, y) in enumerate(test_loader):
        -    out = model(x.cuda())
        +    out = model(x.to(accelerator.device))
             table[i] = out.sum()
        """,
    )


def test_a_batch_that_is_used_again_behind_the_loop_keeps_the_loader_whole() -> None:
    check_migrated(
        WHOLE_TEST_LOADER,
        TRAINED,
        """
         correct = 0
         for x, y in test_loader:
        -    out = model(x.cuda())
        +    out = model(x.to(accelerator.device))
             correct += (out.argmax(1).cpu() == y).sum().item()
         picture = out[0]
        """,
    )


def test_a_loop_without_the_model_keeps_the_loader_whole() -> None:
    check_migrated(
        WHOLE_TEST_LOADER,
        TRAINED,
        """
         mean = 0.0
         for x, y in test_loader:
             mean += x.sum().item()
        """,
    )


def test_evaluation_over_the_training_loader_that_cannot_be_gathered_is_for_review() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         for x, y in loader:
        ! AM140 review: its results are not gathered
             out = model(x)
             picture = open("out.txt").write(str(out))
             del out
        """,
    )


def test_a_loop_that_trains_is_not_gathered() -> None:
    check_migrated(
        PREPARED,
        """
         correct = 0
         for x, y in loader:
             out = model(x)
             loss = F.cross_entropy(out, y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
             correct += (out.argmax(1) == y).sum().item()
        """,
    )


def test_arrays_and_lists_are_no_tensors_to_gather() -> None:
    for ending in ("cpu().numpy()", "tolist()"):
        check_migrated(
            WHOLE_TEST_LOADER,
            TRAINED,
            f"""
             rows = []
             for x, y in test_loader:
            -    out = model(x.cuda()).argmax(1).{ending}
            +    out = model(x.to(accelerator.device)).argmax(1).{ending}
                 rows.extend(out)
            """,
        )


def test_a_loader_with_a_function_of_its_own_stays_whole() -> None:
    check_migrated(
        IMPORTS,
        """


         def collate(rows):
             return torch.stack([x for x, _ in rows], 1), torch.stack([y for _, y in rows])


        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
         test_loader = DataLoader(data, batch_size=50, collate_fn=collate)
        !AM140 note: its loader puts batches together by a function of its own
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
        """
         correct = 0
         for x, y in test_loader:
        -    out = model(x.t().cuda())
        +    out = model(x.t().to(accelerator.device))
             correct += (out.argmax(1).cpu() == y).sum().item()
        """,
    )


def test_a_number_computed_from_the_mean_of_a_batch_is_no_sum() -> None:
    check_migrated(
        "import math",
        WHOLE_TEST_LOADER,
        TRAINED,
        """
         psnr = 0.0
         for x, y in test_loader:
        -    x = x.cuda()
        +    x = x.to(accelerator.device)
             out = model(x)
             mse = F.mse_loss(out, x[:, :3])
             psnr += 10 * math.log10(1 / mse.item())
         psnr /= len(test_loader)
        """,
    )

"""AM125: a batch that the script used on the CPU is brought back there."""

from __future__ import annotations

from support.migration import PREPARED, TRAINED, check_migrated


def test_what_numpy_gets_is_brought_back() -> None:
    check_migrated(
        "import numpy as np",
        PREPARED,
        """
         counts = np.zeros(3)
         for x, y in loader:
        -    counts += np.bincount(y.numpy(), minlength=3)
        !    AM125 migrated: is used on the CPU here
        +    counts += np.bincount(y.cpu().numpy(), minlength=3)
        -    labels = np.array(y)
        +    labels = np.array(y.cpu())
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_batch_that_is_moved_afterwards_was_on_the_cpu_before() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
        -    labels = y.numpy()
        +    labels = y.cpu().numpy()
        -    x, y = x.cuda(), y.cuda()
             again = y.cpu().numpy()
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_a_batch_that_joins_tensors_of_the_cpu_is_brought_back() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         rows = []
         for x, y in loader:
        -    out = model(x.cuda()).cpu()
        +    out = model(x).cpu()
        +    out, y = accelerator.gather_for_metrics((out, y))
        +    out = out.cpu()
        -    rows.append(torch.cat([out, y.unsqueeze(1)], 1))
        +    rows.append(torch.cat([out, y.unsqueeze(1).cpu()], 1))
        """,
    )


def test_a_batch_that_is_compared_with_outputs_on_the_cpu_is_brought_back() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         criterion = nn.CrossEntropyLoss()
         total = hits = 0
         for x, y in loader:
        -    out = model(x.cuda())
        +    out = model(x)
        +    out, y = accelerator.gather_for_metrics((out, y))
             scores = out.cpu()
        -    total += criterion(scores, y).item()
        +    total += criterion(scores, y.cpu()).item()
        -    hits += (scores.argmax(1) == y).sum().item()
        +    hits += (scores.argmax(1) == y.cpu()).sum().item()
        -    hits += scores.argmax(1).eq(y).sum().item()
        +    hits += scores.argmax(1).eq(y.cpu()).sum().item()
        """,
    )


def test_batches_that_join_each_other_stay_on_the_device() -> None:
    check_migrated(
        PREPARED,
        """
         for x, y in loader:
             pair = torch.stack((y, y))
             numbers = y.tolist()
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )


def test_what_comes_from_no_loader_stays() -> None:
    check_migrated(
        "import numpy as np",
        PREPARED,
        TRAINED,
        """
         table = np.array(data.tensors[1])
         ones = torch.ones(3).numpy()
        """,
    )

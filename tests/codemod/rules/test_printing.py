"""AM230: lines appear once, not once a process."""

from __future__ import annotations

from support.migration import PREPARED, TRAINED, check_migrated


def test_a_line_is_printed_once() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
        -print("done", loss.item(), end="!\\n")
        +accelerator.print("done", loss.item(), end="!\\n")
        """,
    )


def test_a_print_before_the_accelerator_is_named() -> None:
    check_migrated(
        """
         import sys
         print(sys.argv)
        ! AM230 note: the accelerator does not exist here yet
        """,
        PREPARED,
        TRAINED,
    )


def test_a_print_in_a_function_that_nothing_calls_stays() -> None:
    check_migrated(
        """
         import torch
         import torch.nn.functional as F
         from torch import nn
        +from accelerate_runtime import Accelerator


         def debug(x):
             print(x)


         def main():
        +    accelerator = Accelerator(cpu=True)
             model = nn.Linear(8, 3)
        !    AM100 note: stays on the CPU
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        +    model, optimizer = accelerator.prepare(model, optimizer)
             loss = model(torch.ones(8)).mean()
        -    loss.backward()
        !    AM250 note
        +    accelerator.backward(loss)
             optimizer.step()


         main()
        """
    )


def test_a_line_for_a_file_is_written_once_and_for_stderr_printed_once() -> None:
    check_migrated(
        "import sys",
        PREPARED,
        TRAINED,
        """
         log = open("log.txt")
        -print("done", file=log)
        +if accelerator.is_main_process:
        +    print("done", file=log)
        -print("done", file=sys.stderr)
        +accelerator.print("done", file=sys.stderr)
        """,
    )


def test_what_goes_to_standard_output_itself_is_written_once() -> None:
    check_migrated(
        "import sys",
        PREPARED,
        TRAINED,
        """
        -sys.stdout.write("done\\n")
        +if accelerator.is_main_process:
        +    sys.stdout.write("done\\n")
         sys.stdout.flush()
         sys.stderr.write("done\\n")
        """,
    )


def test_a_progress_bar_is_shown_once_a_machine() -> None:
    check_migrated(
        "import tqdm",
        PREPARED,
        """
        -for x, y in tqdm.tqdm(loader):
        +for x, y in tqdm.tqdm(loader, disable=not accelerator.is_local_main_process):
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
         for i in tqdm.tqdm(range(3), disable=True):
             pass
        """,
    )


def test_a_print_of_ones_own_stays() -> None:
    check_migrated(
        PREPARED,
        """
         def print(*parts):
             return parts


         print("quiet")
        """,
        TRAINED,
    )


def test_print_as_a_value_stays() -> None:
    check_migrated(
        PREPARED,
        """
         say = [print]
         line = "print(x)"
        """,
        TRAINED,
    )


def test_the_rule_can_be_left_out() -> None:
    check_migrated(PREPARED, TRAINED, 'print("done")', ignore=["AM230"])


def test_a_suppressed_line_stays() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         # accelerate-migrate: skip
         print("rank")
        """,
    )


def test_a_line_beside_a_progress_bar_is_written_once() -> None:
    check_migrated(
        PREPARED,
        "from tqdm import tqdm",
        TRAINED,
        """
        -tqdm.write("done")
        +if accelerator.is_main_process:
        +    tqdm.write("done")
        """,
    )

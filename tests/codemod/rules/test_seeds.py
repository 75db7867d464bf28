"""AM170: seeds stay; a CUDA seed that repeats the general one goes."""

from __future__ import annotations

from support.migration import PREPARED, TRAINED, check_migrated


def test_a_cuda_seed_beside_the_general_one_goes_with_its_test() -> None:
    check_migrated(
        PREPARED,
        """
         torch.manual_seed(7)
        -torch.cuda.manual_seed(7)
        -if torch.cuda.is_available():
        -    torch.cuda.manual_seed_all(7)
        """,
        TRAINED,
    )


def test_the_general_seed_and_those_of_other_libraries_stay() -> None:
    check_migrated(
        "import random",
        PREPARED,
        """
         random.seed(7)
         torch.manual_seed(7)
        """,
        TRAINED,
    )


def test_a_cuda_seed_of_another_number_stays() -> None:
    check_migrated(
        PREPARED,
        """
         torch.manual_seed(7)
         torch.cuda.manual_seed(8)
        ! AM170 note: seeds CUDA alone
        """,
        TRAINED,
    )


def test_a_cuda_seed_alone_stays() -> None:
    check_migrated(
        PREPARED,
        """
         torch.cuda.manual_seed_all(7)
        ! AM170 note: seeds CUDA alone
        """,
        TRAINED,
    )


def test_a_test_with_more_than_the_seed_in_it_stays() -> None:
    check_migrated(
        PREPARED,
        """
         torch.manual_seed(7)
         if torch.cuda.is_available():
        -    torch.cuda.manual_seed(7)
             torch.backends.cudnn.deterministic = True
        """,
        TRAINED,
    )


def test_random_tensors_of_the_training_loop_are_the_same_on_every_process() -> None:
    check_migrated(
        PREPARED,
        """
         torch.manual_seed(7)
        ! AM170 note: random tensors drawn in the training loop are the same on each
         for x, y in loader:
        -    noise = torch.randn(8).cuda()
        +    noise = torch.randn(8).to(accelerator.device)
             loss = F.cross_entropy(model(x + noise), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        """,
    )

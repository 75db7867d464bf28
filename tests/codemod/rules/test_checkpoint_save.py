"""AM150: checkpoints are written once, with the names and keys they had."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated, check_unchanged


def test_a_state_dict_is_asked_of_the_accelerator_and_saved_once() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
        -torch.save(model.state_dict(), "net.pt")
        +accelerator.save(accelerator.get_state_dict(model), "net.pt")
        """,
    )


def test_a_checkpoint_keeps_its_keys() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
        -torch.save({"net": model.state_dict(), "opt": optimizer.state_dict()}, "net.pt")
        +accelerator.save({"net": accelerator.get_state_dict(model), "opt": optimizer.state_dict()}, "net.pt")
        """,
    )


def test_a_best_state_that_is_kept_for_later() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
        -best = model.state_dict()
        +best = accelerator.get_state_dict(model)
        -torch.save(best, "net.pt")
        +accelerator.save(best, "net.pt")
        """,
    )


def test_a_whole_model_is_saved_without_its_wrapper() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
        -torch.save(model, "net.pt")
        +accelerator.save(accelerator.unwrap_model(model), "net.pt")
        """,
    )


def test_a_tensor_is_saved_as_it_is() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
        -torch.save(torch.ones(3), "ones.pt")
        +accelerator.save(torch.ones(3), "ones.pt")
        """,
    )


def test_the_state_of_an_unprepared_teacher_is_its_own() -> None:
    check_migrated(
        IMPORTS,
        """
         teacher = nn.Linear(8, 3)
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         model.load_state_dict(teacher.state_dict())
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
        """
         kept = teacher.state_dict()
        """,
    )


def test_the_state_before_prepare_is_the_models_own() -> None:
    check_migrated(
        IMPORTS,
        """
        +accelerator = Accelerator()
         model = nn.Linear(8, 3)
         start = model.state_dict()
         optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
         loader = DataLoader(data, batch_size=32, shuffle=True)
        +model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        """,
        TRAINED,
    )


def test_an_open_file_is_guarded_since_opening_truncates_it() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
        -with open("ones.pt", "wb") as stream:
        -    torch.save(torch.ones(3), stream)
        !    AM150 review: written by the main process only
        -    stream.flush()
        +if accelerator.is_main_process:
        +    with open("ones.pt", "wb") as stream:
        +        torch.save(torch.ones(3), stream)
        +        stream.flush()
        """,
    )


def test_a_file_that_is_opened_to_save_once() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         path = "net.pt"
        -with open(path, "wb") as stream:
        -    torch.save(model.state_dict(), stream)
        +accelerator.save(accelerator.get_state_dict(model), path)
         if True:
        -    with open("whole.pt", 'wb') as f:
        -        torch.save(model, f)
        +    accelerator.save(accelerator.unwrap_model(model), "whole.pt")
        """,
    )


def test_the_save_method_of_a_class_of_ones_own_stays() -> None:
    check_migrated(
        PREPARED,
        """
         class Log:
             def save(self, path):
                 return path

             def state_dict(self):
                 return {}


         log = Log()
         log.save("log.txt")
         states = log.state_dict()
        """,
        TRAINED,
    )


def test_a_file_that_saves_and_does_not_train_is_left() -> None:
    check_unchanged(
        """
        import torch
        from torch import nn

        model = nn.Linear(8, 3)
        torch.save(model.state_dict(), "backward.pt")
        """
    )


def test_whole_models_in_dicts_and_lists_are_saved_without_their_wrappers() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
        -torch.save({"net": model, "epoch": 3}, "net.pt")
        +accelerator.save({"net": accelerator.unwrap_model(model), "epoch": 3}, "net.pt")
        -state = {"net": model}
        +state = {"net": accelerator.unwrap_model(model)}
        -torch.save(state, "again.pt")
        +accelerator.save(state, "again.pt")
        -torch.save([model, 3], "list.pt")
        +accelerator.save([accelerator.unwrap_model(model), 3], "list.pt")
        """,
    )


def test_a_whole_model_in_a_container_that_is_filled_elsewhere_is_left_to_a_person() -> None:
    check_migrated(
        PREPARED,
        TRAINED,
        """
         state = dict(net=model)
        -torch.save(state, "net.pt")
        !AM150 manual: saves a prepared model whole
        +accelerator.save(state, "net.pt")
        """,
    )


def test_a_trainer_that_is_made_and_started_in_one_line() -> None:
    check_migrated(
        IMPORTS,
        """


         class Trainer:
             def __init__(self):
        +        self.accelerator = Accelerator()
                 self.model = nn.Linear(8, 3)
                 self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                 self.loader = DataLoader(data, batch_size=32, shuffle=True)
        +        self.model, self.optimizer, self.loader = self.accelerator.prepare(
        +            self.model, self.optimizer, self.loader
        +        )

             def run(self):
                 for x, y in self.loader:
                     loss = F.cross_entropy(self.model(x), y)
        -            loss.backward()
        +            self.accelerator.backward(loss)
                     self.optimizer.step()
        -        torch.save(self.model.state_dict(), "net.pt")
        +        self.accelerator.save(self.accelerator.get_state_dict(self.model), "net.pt")


         Trainer().run()
        """,
    )

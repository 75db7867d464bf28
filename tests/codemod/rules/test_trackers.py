"""AM245: TensorBoard, wandb and the like get each entry once."""

from __future__ import annotations

from support.migration import IMPORTS, PREPARED, TRAINED, check_migrated


def test_a_writer_is_made_and_asked_by_the_main_process() -> None:
    check_migrated(
        "import tensorboardX",
        PREPARED,
        """
        -writer = tensorboardX.SummaryWriter("logs")
        +writer = tensorboardX.SummaryWriter("logs") if accelerator.is_main_process else None
         for x, y in loader:
             loss = F.cross_entropy(model(x), y)
        -    loss.backward()
        +    accelerator.backward(loss)
             optimizer.step()
        -    writer.add_scalar("loss", loss.item())
        -writer.close()
        +    if accelerator.is_main_process:
        +        writer.add_scalar("loss", loss.item())
        +if accelerator.is_main_process:
        +    writer.close()
        """,
    )


def test_a_writer_may_be_handed_to_functions_of_the_file() -> None:
    check_migrated(
        IMPORTS,
        """
         from torch.utils.tensorboard import SummaryWriter


        -def train(model, optimizer, loader, writer=None):
        +def train(accelerator, model, optimizer, loader, writer=None):
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
                 if writer is not None:
        -            writer.add_scalar("loss", loss.item())
        +            if accelerator.is_main_process:
        +                writer.add_scalar("loss", loss.item())


         def main():
        +    accelerator = Accelerator()
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        -    writer = SummaryWriter()
        -    train(model, optimizer, loader, writer=writer)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        +    writer = SummaryWriter() if accelerator.is_main_process else None
        +    train(accelerator, model, optimizer, loader, writer=writer)


         main()
        """,
    )


def test_a_writer_that_is_used_in_other_ways_is_made_by_every_process() -> None:
    check_migrated(
        PREPARED,
        "from tensorboardX import SummaryWriter",
        TRAINED,
        """
         writer = SummaryWriter("logs")
        ! AM245 note: every process makes one
         folder = writer.log_dir
        -writer.add_scalar("loss", loss.item())
        +if accelerator.is_main_process:
        +    writer.add_scalar("loss", loss.item())
        """,
    )


def test_the_graph_is_that_of_the_bare_model() -> None:
    check_migrated(
        PREPARED,
        "from tensorboardX import SummaryWriter",
        TRAINED,
        """
        -writer = SummaryWriter()
        -writer.add_graph(model, x)
        +writer = SummaryWriter() if accelerator.is_main_process else None
        +if accelerator.is_main_process:
        +    writer.add_graph(accelerator.unwrap_model(model), x)
        """,
    )


def test_an_entry_that_needs_every_process_is_left_to_a_person() -> None:
    check_migrated(
        PREPARED,
        "from tensorboardX import SummaryWriter",
        TRAINED,
        """
         def measure():
             return model(x).mean().item()


         writer = SummaryWriter()
         writer.add_scalar("mean", measure())
        ! AM245 manual: guarding it would leave the other processes behind
        """,
    )


def test_a_run_records_on_the_main_process() -> None:
    check_migrated(
        "import wandb",
        PREPARED,
        """
        -run = wandb.init(project="digits")
        +run = wandb.init(project="digits", mode=None if accelerator.is_main_process else "disabled")
         rate = wandb.config.lr
        """,
        TRAINED,
        """
         wandb.log({"loss": loss.item()})
         wandb.finish()
        """,
    )


def test_the_mode_of_a_run_is_that_of_the_main_process() -> None:
    check_migrated(
        "import wandb",
        PREPARED,
        """
        -wandb.init(project="digits", mode="offline")
        +wandb.init(project="digits", mode="offline" if accelerator.is_main_process else "disabled")
        """,
        TRAINED,
    )


def test_entries_of_a_run_that_starts_elsewhere_are_made_by_the_main_process() -> None:
    check_migrated(
        "import wandb",
        PREPARED,
        TRAINED,
        """
        -wandb.log({"loss": loss.item()})
        +if accelerator.is_main_process:
        +    wandb.log({"loss": loss.item()})
        """,
    )


def test_a_class_that_writes_keeps_the_accelerator() -> None:
    check_migrated(
        IMPORTS,
        """
         from torch.utils.tensorboard import SummaryWriter


         class Log:
        -    def __init__(self, folder):
        -        self.writer = SummaryWriter(folder)
        +    def __init__(self, accelerator, folder):
        +        self.accelerator = accelerator
        +        self.writer = SummaryWriter(folder) if accelerator.is_main_process else None

             def number(self, name, value):
        -        self.writer.add_scalar(name, value)
        +        if self.accelerator.is_main_process:
        +            self.writer.add_scalar(name, value)


         def main():
        +    accelerator = Accelerator()
             model = nn.Linear(8, 3)
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
             loader = DataLoader(data, batch_size=32, shuffle=True)
        +    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        -    log = Log("runs")
        +    log = Log(accelerator, "runs")
             for x, y in loader:
                 loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        +        accelerator.backward(loss)
                 optimizer.step()
                 log.number("loss", loss.item())


         main()
        """,
    )

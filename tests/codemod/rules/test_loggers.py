"""AM235: lines of `logging` and loguru appear once, not once a process."""

from __future__ import annotations

from support.migration import IMPORTS, TRAINED, check_migrated

MADE = """
 model = nn.Linear(8, 3)
 optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
 loader = DataLoader(data, batch_size=32, shuffle=True)
+model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""
SILENT = """
+accelerator = Accelerator()
+if not accelerator.is_main_process:
+    logging.disable(logging.WARNING)
"""


def test_loggers_are_silent_on_all_processes_but_the_main_one() -> None:
    check_migrated(
        IMPORTS,
        """
        +import logging

         logging.basicConfig(level=logging.INFO)
         logger = logging.getLogger(__name__)
        """.replace("+import", " import"),
        SILENT,
        MADE,
        TRAINED,
        """
         logger.info("loss %f", loss.item())
         logging.warning("done")
        """,
    )


def test_the_accelerator_is_made_before_the_first_line() -> None:
    check_migrated(
        "import logging",
        IMPORTS,
        SILENT,
        """
         logging.info("a model is made")
        """,
        MADE,
        TRAINED,
    )


def test_a_logger_may_come_from_a_function() -> None:
    check_migrated(
        "import logging",
        IMPORTS,
        """


         def get_logger(name):
             logger = logging.getLogger(name)
             logger.addHandler(logging.StreamHandler())
             return logger


         log = get_logger("training")
        """,
        SILENT,
        MADE,
        TRAINED,
        """
         log.info("done")
        """,
    )


def test_a_log_file_that_is_emptied_at_first_is_opened_by_the_main_process() -> None:
    check_migrated(
        "import logging",
        "import os",
        IMPORTS,
        SILENT,
        """
        -handler = logging.FileHandler("log.txt", mode="w")
        +handler = logging.FileHandler("log.txt" if accelerator.is_main_process else os.devnull, mode="w")
         other = logging.FileHandler("all.txt")
        """,
        MADE,
        TRAINED,
        """
         logging.info("done")
        """,
    )


def test_loguru_is_silent_as_a_whole() -> None:
    check_migrated(
        IMPORTS,
        "from loguru import logger",
        """
        +accelerator = Accelerator()
        +if not accelerator.is_main_process:
        +    logger.disable("")
        """,
        MADE,
        TRAINED,
        """
         logger.success("done")
        """,
    )


def test_an_object_with_methods_of_these_names_is_no_logger() -> None:
    check_migrated(
        IMPORTS,
        """
         class Report:
             def info(self, text):
                 return text


        +accelerator = Accelerator()
        """,
        MADE,
        TRAINED,
        """
         Report().info("done")
        """,
    )

"""Many short trainings: one process imports torch once and forks itself for each program."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

PRINTED = "printed.txt"


class Forks:
    """The process that trains programs; what a program prints goes to a file in its folder."""

    def __init__(self) -> None:
        paths = [path for path in sys.path if path] + [str(Path(__file__).parents[1])]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ACCELERATE_")}
        environment |= {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "support.forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def train(self, folder: Path, files: Mapping[str, str], *, original: bool) -> str:
        """Write a program into a folder, train it and return what it printed, or how it failed."""
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{int(original)} {folder}\n")
        self._process.stdin.flush()
        ended = self._process.stdout.readline().strip()
        printed = (folder / PRINTED).read_text()
        assert ended == "0", printed
        return printed

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


def _serve() -> None:
    import accelerate  # noqa: F401  # all that takes long to import, before the first fork
    import torch._dynamo
    import torch.distributed
    import torch.utils.data

    import accelerate_runtime  # noqa: F401

    assert torch.get_num_threads() == 1, "a process with threads must not fork"
    for line in sys.stdin:
        original, _, folder = line.rstrip("\n").partition(" ")
        child = os.fork()
        if child == 0:
            os._exit(_train(Path(folder), original == "1"))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _train(folder: Path, original: bool) -> int:
    os.chdir(folder)
    with open(PRINTED, "w", buffering=1) as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
        sys.stdout = sys.stderr = printed
        try:
            if original:
                from accelerate_migrate.verify.recorder import redirect_cuda

                redirect_cuda()
            sys.path[0] = str(folder)
            sys.argv = ["train.py"]
            runpy.run_path("train.py", run_name="__main__")
        except BaseException:
            traceback.print_exc()
            return 1
    return 0


if __name__ == "__main__":
    _serve()

"""Trains in processes that are killed at random moments and started again, until the training is done.

python killed_runs.py FOLDER PROCESSES KILLS SEED

Prints one JSON object: the losses of a training that nobody disturbed, those of the disturbed one (each step's loss as
every attempt that reached it saw it), and how often it was killed. Processes are forked from this one, which has
imported torch but not used it: so they start in no time.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from accelerate_runtime import Accelerator, ProjectConfiguration
from accelerate_runtime.checkpointing.choosing import newest_whole
from accelerate_runtime.utils import set_seed

EPOCHS = 2


class Noisy(Dataset[torch.Tensor]):
    """A dataset that draws, in its worker."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(8) + index / 24


def train(folder: Path, workers: int) -> None:
    """One attempt: go on from the latest state, and save one after each step, some of them in the background."""
    set_seed(1)
    project = ProjectConfiguration(str(folder), automatic_checkpoint_naming=True, total_limit=2)
    accelerator = Accelerator(cpu=True, project_config=project, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.3), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    done = Steps()
    accelerator.register_for_checkpointing(done)
    if (folder / "checkpoints").exists() and newest_whole(folder / "checkpoints") is not None:
        accelerator.load_state("latest")
    log = (folder / f"losses.{accelerator.process_index}").open("a")
    while done.epoch < EPOCHS:
        for x in loader:
            with accelerator.accumulate(model):
                loss = model(x).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            log.write(f"{done.step} {loss.item()!r}\n")
            log.flush()
            done.step += 1
            accelerator.save_state(async_save=done.step % 2 == 0)
        done.epoch += 1
    accelerator.end_training()


class Steps:
    """The script's own count."""

    def __init__(self) -> None:
        self.step = self.epoch = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step, self.epoch = state["step"], state["epoch"]


def start(folder: Path, processes: int, workers: int) -> list[int]:
    """Fork the processes of one attempt; returns their ids."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(processes):
        child = os.fork()
        if not child:
            os.setpgid(0, 0)  # with its workers
            if processes > 1:
                place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_PORT": port}
                os.environ |= {name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
            code = 1
            try:
                train(folder, workers)
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    return children


def wait(children: list[int], seconds: float | None) -> bool:
    """Wait for the processes; after `seconds` kill them, as if the machine went. Returns whether they ended well."""
    codes: dict[int, int] = {}
    end = None if seconds is None else time.monotonic() + seconds
    while len(codes) < len(children):
        for child in children:
            if child not in codes:
                found, status = os.waitpid(child, os.WNOHANG)
                if found:
                    codes[child] = os.waitstatus_to_exitcode(status)
        if end is not None and time.monotonic() > end:
            for child in children:
                if child not in codes:
                    os.killpg(child, signal.SIGKILL)
            end = None
        time.sleep(0.001)
    bad = [code for code in codes.values() if code not in (0, -signal.SIGKILL)]
    if bad:
        raise SystemExit(f"a process ended with {bad}")
    return all(code == 0 for code in codes.values())


def losses(folder: Path, processes: int) -> list[dict[str, list[str]]]:
    """For each process, what each step's loss was, in every attempt that came that far."""
    found = []
    for rank in range(processes):
        seen: dict[str, list[str]] = {}
        for line in (folder / f"losses.{rank}").read_text().splitlines():
            step, _, value = line.partition(" ")
            if value and value not in seen.setdefault(step, []):
                seen[step].append(value)
        found.append(seen)
    return found


def main(folder: Path, processes: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    whole, torn = folder / "whole", folder / "torn"
    workers = 1 if processes == 1 else 0
    whole.mkdir(parents=True)
    begin = time.monotonic()
    assert wait(start(whole, processes, workers), None)
    took = time.monotonic() - begin
    count, rounds, broken = 0, 0, []
    while count < kills:
        shutil.rmtree(torn, ignore_errors=True)
        torn.mkdir()
        rounds += 1
        while not wait(start(torn, processes, workers), chance.uniform(0, took) if count < kills else None):
            count += 1
        broken.append(losses(torn, processes))
    print(json.dumps({"whole": losses(whole, processes), "torn": broken, "kills": count, "rounds": rounds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(text) for text in sys.argv[2:]))

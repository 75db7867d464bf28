"""Before several machines start: they find one another, or each says what is wrong and who is missing."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from .config import ConfigError
from .plan import LaunchPlan

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

_PAUSE = 0.2  # seconds between two looks
_ANSWER = 30.0  # seconds that a store may take to answer
_GRACE = 10.0  # seconds that machine 0 may take to say who did not come
_FIRST_WORD, _NEXT_WORD = 10.0, 60.0  # seconds after which those who wait say for whom
_TICKET, _VERDICT, _READ = "accelerate_runtime/machine/{}", "accelerate_runtime/verdict", "accelerate_runtime/read"


def check_port(port: int) -> None:
    """Raise ConfigError where another program here listens on `port`."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise ConfigError(
                f"port {port} of this machine cannot be used ({error.strerror}), perhaps by another training: choose "
                "another main_process_port; on one machine, leave it out and a free one is taken"
            ) from None


def meet(plan: LaunchPlan, say: Callable[[str], None]) -> TCPStore:
    """Wait until every machine has come to the first one's address and all ask for the same training.

    Args:
        say: told, now and then, for whom we wait.

    Returns:
        The store they met in. On machine 0 it is the server, which torch's agent shares as long as it lives.

    Raises:
        ConfigError: machines are missing after `plan.rendezvous_options["timeout"]` seconds, or do not fit together.
    """
    seconds = float(plan.rendezvous_options["timeout"])
    store = _open(plan) if plan.machine_rank == 0 else _reach(plan, _Waiting(seconds, say))
    # anew, and longer where it is machine 0 that tells: its own may have begun after ours
    waiting = _Waiting(seconds if plan.machine_rank == 0 else seconds + _GRACE, say)
    ticket = _TICKET.format(plan.machine_rank)
    if store.add(f"{ticket}/count", 1) > 1:
        raise ConfigError(f"another machine has already come as machine_rank {plan.machine_rank}; each needs its own")
    store.set(ticket, json.dumps(_describe(plan)))
    if plan.machine_rank == 0:
        verdict = _judge(store, plan, waiting)
        store.set(_VERDICT, verdict)
        if verdict:
            _until_read(store, plan)
    else:
        verdict = _await_verdict(store, plan, waiting)
    if verdict:
        raise ConfigError(verdict)
    return store


class _Waiting:
    """A time-out that says at intervals what is waited for."""

    def __init__(self, seconds: float, say: Callable[[str], None]) -> None:
        self.seconds, self._say = seconds, say
        self._start = time.monotonic()
        self._next_word = _FIRST_WORD

    def pause(self, reason: str) -> bool:
        """Wait a moment; False once the time is over."""
        passed = time.monotonic() - self._start
        if passed > self.seconds:
            return False
        if passed > self._next_word:
            self._say(f"{reason} ({passed:.0f} of {self.seconds:.0f} seconds)")
            self._next_word += _NEXT_WORD
        time.sleep(_PAUSE)
        return True


def _open(plan: LaunchPlan) -> TCPStore:
    try:
        return _store(plan, serve=True)
    except RuntimeError as error:
        raise ConfigError(
            f"machine 0 cannot open {plan.address}:{plan.port}; main_process_ip must be an address of machine 0: "
            f"{str(error).splitlines()[0]}"
        ) from None


def _reach(plan: LaunchPlan, waiting: _Waiting) -> TCPStore:
    while True:
        try:
            socket.create_connection((str(plan.address), plan.port), timeout=5).close()
            break
        except OSError as error:
            reason = error.strerror or str(error)
        if not waiting.pause(f"machine {plan.machine_rank} waits for machine 0 at {plan.address}:{plan.port}"):
            raise ConfigError(
                f"machine {plan.machine_rank} did not reach machine 0 at {plan.address}:{plan.port} within "
                f"{waiting.seconds:.0f} seconds ({reason}): is it started, is the address right, does a firewall "
                "close the port?"
            )
    # In a thread, as a store would wait for ever for the answer of a server of another kind.
    found: list[TCPStore] = []

    def open_store() -> None:
        with suppress(RuntimeError):
            found.append(_store(plan, serve=False))

    opening = threading.Thread(target=open_store, daemon=True)
    opening.start()
    opening.join(_ANSWER)
    if not found:
        raise ConfigError(
            f"what listens at {plan.address}:{plan.port} does not answer as machine 0 would: is it another program, or "
            "does machine 0 use another version of torch?"
        )
    return found[0]


def _store(plan: LaunchPlan, serve: bool) -> TCPStore:
    from torch.distributed import TCPStore  # type: ignore[attr-defined, unused-ignore]

    return TCPStore(
        str(plan.address),
        plan.port,
        is_master=serve,
        wait_for_workers=False,
        multi_tenant=serve,  # torch's agent will join this server
        timeout=timedelta(seconds=_ANSWER),
    )


def _describe(plan: LaunchPlan) -> dict[str, str | int]:
    """What must be the same on all machines, and who we are."""
    import torch

    return {
        "host": socket.gethostname(),
        "num_machines": plan.machines,
        "num_processes": plan.processes * plan.machines,
        "torch": torch.__version__.split("+")[0],
    }


def _judge(store: TCPStore, plan: LaunchPlan, waiting: _Waiting) -> str:
    """On machine 0: what is wrong, or nothing once all are here."""
    absent = list(range(1, plan.machines))
    while True:
        absent = [rank for rank in absent if not store.check([_TICKET.format(rank)])]
        if not absent:
            break
        names = f"machine{'s' if len(absent) > 1 else ''} {', '.join(map(str, absent))}"
        if not waiting.pause(f"machine 0 at {plan.address}:{plan.port} waits for {names} of {plan.machines}"):
            return (
                f"{names} of {plan.machines} did not come to machine 0 at {plan.address}:{plan.port} within "
                f"{waiting.seconds:.0f} seconds: are they started, with this address and their own machine_rank?"
            )
    tickets = [json.loads(store.get(_TICKET.format(rank))) for rank in range(plan.machines)]
    for rank, ticket in enumerate(tickets):
        for key in ("num_machines", "num_processes", "torch"):
            if ticket[key] != tickets[0][key]:
                return (
                    f"machines do not agree on {key}: machine 0 ({tickets[0]['host']}) has {tickets[0][key]}, machine "
                    f"{rank} ({ticket['host']}) has {ticket[key]}"
                )
    return ""


def _until_read(store: TCPStore, plan: LaunchPlan) -> None:
    """Stay until those who came have read the verdict, at most five seconds."""
    here = sum(store.check([_TICKET.format(rank)]) for rank in range(1, plan.machines))
    for _ in range(25):
        if store.add(_READ, 0) >= here:
            break
        time.sleep(_PAUSE)


def _await_verdict(store: TCPStore, plan: LaunchPlan, waiting: _Waiting) -> str:
    try:
        while not store.check([_VERDICT]):
            if not waiting.pause(
                f"machine {plan.machine_rank} is at {plan.address}:{plan.port} and waits for the others"
            ):
                return f"machine 0 at {plan.address}:{plan.port} did not answer within {waiting.seconds:.0f} seconds"
        verdict = store.get(_VERDICT).decode()
        store.add(_READ, 1)
        return verdict
    except RuntimeError:  # what a store raises
        return f"machine 0 at {plan.address}:{plan.port} went away before all machines had come"

"""Where a prepared loader is: its epoch, the pass in progress, and how to come there again in another process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader

from . import generators
from .fetching import place_of_watched
from .generators import Generators, States
from .indices import is_repeatable
from .loaders import index_sampler, is_stream
from .opening import Opened, Reopening, dismiss_workers, iterates_plainly, place_of_idle_workers
from .samplers import pass_on_epoch
from .seedable import seedable_samplers

_VERSION = 1


@dataclass
class Ahead:
    """Where one batch more was read than the script has got: how it was before."""

    states: States
    place: dict[str, Any]


@dataclass
class Reading:
    """A pass over a loader.

    Attributes:
        opened: what is read.
        start: the random states where the pass began.
        epochs: the epochs that samplers and dataset were at there.
        given: how many batches the script has got, counted from the epoch's start.
        whole: whether these are all.
        ahead: set where one batch more is read already.
        held: where the pass goes on from a state that was saved so: that batch, or none where there was no other.
    """

    opened: Opened
    start: States
    epochs: dict[str, int]
    given: int = 0
    whole: bool = False
    ahead: Ahead | None = None
    held: list[Any] | None = None


class Position:
    """Where one loader is. The loaders that `skip_first_batches` makes of it share it.

    Args:
        base: the loader that the script made.
        source: what is iterated.
        processes, index: the number of processes, and which of them this is.
        round_size: how many samples all processes together take with each batch, in the order of the epoch; None where
            that is not known.
    """

    def __init__(
        self, base: DataLoader[Any], source: Any, processes: int, index: int, round_size: int | None = None
    ) -> None:
        self.base, self.source, self.processes, self.index = base, source, processes, index
        self.round_size = round_size
        self.iteration = 0
        """The number of the pass in progress, or of the next one."""
        self.told: int | None = None
        """The epoch that the script has set, if it did."""
        self._reading: Reading | None = None
        self._pending: dict[str, Any] | None = None
        self._next: dict[str, Any] | None = None  # the place where the next pass begins, if no pass is pending

    # Passes

    def begin(self, actions: Sequence[Callable[[], object]], skip: int | None, looks_ahead: bool) -> Reading:
        """Open the pass that comes next: the rest of one that was loaded, or a new one.

        Args:
            actions: what to call where a pass begins.
            skip: how many batches the script wants to leave out; None where it doesn't say.
            looks_ahead: a batch will be read before the one before it is given.
        """
        pending, self._pending = self._pending, None
        if pending is not None and pending["whole"] and skip not in (None, pending["given"]):
            self._go_on(pending, None, actions, looks_ahead)  # the script has gone on to the next epoch already
            self.iteration += 1
            pending = None
        if pending is not None:
            self._reading = self._go_on(pending, skip, actions, looks_ahead)
            return self._reading
        for sampler in seedable_samplers(self.base):
            sampler.set_epoch(self.iteration)
        start, epochs = generators.read(self._generators(self._used_by_opening())), self._epochs()
        for action in actions:
            action()
        place, self._next = self._next, None
        opened = Opened(self.source, skip or 0, place, exact=not skip)
        self._reading = Reading(opened, start, epochs, skip or 0)
        return self._reading

    def _go_on(
        self, pending: dict[str, Any], skip: int | None, actions: Sequence[Callable[[], object]], looks_ahead: bool
    ) -> Reading:
        """Do again what the pass did first, and leave the random generators as they are."""
        for sampler in seedable_samplers(self.base):
            sampler.set_epoch(self.iteration)
        given = pending["given"] if skip is None else skip
        exact = given == pending["given"]
        found = self._generators(generators.GLOBAL, devices=True)
        now, epochs = generators.read(found), self._epochs()
        start = generators.unpack(pending["start"])
        generators.write(start, found)
        try:
            for action in actions:
                action()
            opened = Opened(self.source, given, generators.unpack(pending["place"]), exact)
            reading = Reading(opened, start, epochs, given, pending["whole"] and exact)
            if given == 0:
                opened.begin()
            if reading.whole:
                reading.held = []
            elif exact and looks_ahead and pending["ahead"] is not None:
                generators.write(generators.unpack(pending["ahead"]), found)
                reading.held = list(islice(opened.iterator, 1))
        finally:
            generators.write(now, found)
        if reading.whole:
            for _ in opened.iterator:  # samplers may draw once more where they end
                raise ValueError(
                    f"the loader's state was saved at the end of an epoch of {given} batches, but there are more now: "
                    "is its dataset the one that the state was saved with?"
                )
        return reading

    def end(self, reading: Reading) -> None:
        """The pass is over."""
        if self._reading is reading:
            self._reading = None
            self.iteration += 1

    def before_reading_ahead(self, reading: Reading) -> None:
        """Remember how it was before another batch is read."""
        before = None if reading.ahead is None else reading.ahead.states
        reading.ahead = Ahead(generators.read(self._generators(generators.GLOBAL), before), reading.opened.place())

    def set_epoch(self, epoch: int) -> None:
        """Number the next pass, and tell samplers and dataset."""
        self.iteration = self.told = epoch
        pass_on_epoch(epoch, *self._holders().values())

    # Saving and loading

    def state_dict(self) -> dict[str, Any]:
        """See DataLoaderShard.state_dict."""
        reading = self._reading
        held = generators.held_generators(self._holders())
        return {
            "version": _VERSION,
            "processes": self.processes,
            "process": self.index,
            "round": self.round_size,
            "batches": self.length_of(self.base),  # whatever each process gets of them
            "dataset": self.length_of(self.base.dataset),
            "iteration": self.iteration,
            "epoch": self.told,
            "epochs": reading.epochs if reading is not None and self._pending is None else self._epochs(),
            "seeds": [sampler.initial_seed for sampler in seedable_samplers(self.base)],
            "generators": generators.pack(generators.read(held)),
            "next": generators.pack(self._next_place()),
            "pass": self._pending if self._pending is not None or reading is None else self._saved(reading),
        }

    def _saved(self, reading: Reading) -> dict[str, Any]:
        ahead = reading.ahead
        return {
            "given": reading.given,
            "whole": reading.whole or reading.given == self.length_of(self.source),
            "start": generators.pack(reading.start),
            "ahead": None if ahead is None else generators.pack(ahead.states),
            "place": generators.pack(reading.opened.place() if ahead is None else ahead.place),
        }

    def _next_place(self) -> dict[str, Any] | None:
        """Where the next pass begins, if none is in progress."""
        if self._pending is not None or self._reading is not None or self._next is not None:
            return self._next
        source = self.source
        if isinstance(source, Reopening):
            return {"beginning": source.next_beginning()}
        return place_of_idle_workers(source) | place_of_watched(source)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See DataLoaderShard.load_state_dict."""
        if not isinstance(state, dict) or state.get("version") != _VERSION or "pass" not in state:
            raise ValueError(
                "load_state_dict: this is no state of a prepared loader, or one of another version of "
                f"accelerate_runtime; it is a {type(state).__name__}"
                + (f" with {sorted(map(str, state))[:8]}" if isinstance(state, dict) else "")
            )
        if state["pass"] is not None and state["processes"] != self.processes and state.get("round") is not None:
            state = self._on_other_processes(state)
        elif state["pass"] is not None:
            self._expect("processes", state["processes"], self.processes, "start as many processes")
            if state["process"] != self.index:
                raise ValueError(
                    f"the loader's state is that of process index {state['process']}, but this is {self.index}: each "
                    "process saves and loads its own."
                )
            samples, batches = self.length_of(self.base.dataset), self.length_of(self.base)
            self._expect("samples in the dataset", state["dataset"], samples, "use the same dataset")
            self._expect("batches in an epoch", state["batches"], batches, "use the same batch size and sampler")
            if not getattr(self.source, "in_order", True):
                raise ValueError(
                    "the loader's state was saved in the middle of an epoch, but with in_order=False batches come as "
                    "workers finish them, so those that had not come are not known: use in_order=True."
                )
        self._reading = None
        self._pending, self._next = state["pass"], generators.unpack(state["next"])
        if isinstance(self.source, Reopening):
            self.source.dismiss_workers()
        else:
            dismiss_workers(self.source)
        if state["epoch"] is not None:
            self.set_epoch(state["epoch"])
        self.iteration, self.told = state["iteration"], state["epoch"]
        for path, holder in self._holders().items():
            if path in state["epochs"]:
                _set_epoch(holder, state["epochs"][path])
        for sampler, seed in zip(seedable_samplers(self.base), state["seeds"], strict=False):
            sampler.initial_seed = seed
        generators.write(generators.unpack(state["generators"]), generators.held_generators(self._holders()))

    def _on_other_processes(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state of process 0 of another number of processes, so that the rest of the epoch's samples come here.

        What a dataset draws at random will be other numbers.
        """
        length = self.length_of(self.base.dataset)
        self._expect("samples in the dataset", state["dataset"], length, "use the same dataset")
        seen = state["pass"]["given"] * state["round"]
        whole = state["pass"]["whole"]
        if self.round_size is None or (seen % self.round_size and not whole):
            here = f"take {self.round_size} at a time" if self.round_size else "have a loader whose order is not known"
            raise ValueError(
                f"the loader's state was saved in the middle of an epoch with {state['processes']} processes, after "
                f"{seen} samples, but here are {self.processes}, which {here}, so that they cannot go on there: choose "
                "another batch size, start as many processes, or load a state that was saved between two epochs."
            )
        given = self.length_of(self.source) if whole else seen // self.round_size
        return {**state, "pass": {**state["pass"], "given": given, "ahead": None, "place": None}}

    def _expect(self, what: str, saved: int | None, mine: int | None, advice: str) -> None:
        if saved is not None and mine is not None and saved != mine:
            raise ValueError(
                f"the loader's state was saved in the middle of an epoch with {saved} {what}, but here are {mine}, so "
                f"the rest of that epoch is not known: {advice}, or load a state that was saved between two epochs."
            )

    # What the loader is made of

    def _holders(self) -> dict[str, Any]:
        base = self.base
        batches = getattr(base, "batch_sampler", None)
        parts = {
            "loader": base,
            "batch_sampler": batches,
            "batch_sampler.sampler": getattr(batches, "sampler", None),
            "sampler": base.sampler,
            "sampler.sampler": getattr(base.sampler, "sampler", None),
            "dataset": base.dataset,
            "collate_fn": base.collate_fn,
        }
        return {path: part for path, part in parts.items() if part is not None}

    def _generators(self, names: Sequence[str], devices: bool = False) -> Generators:
        found = generators.global_generators(names) | generators.held_generators(self._holders())
        return found | generators.device_generators() if devices else found

    def _used_by_opening(self) -> Sequence[str]:
        """The global generators that matter where the pass is opened again."""
        source = self.source
        if iterates_plainly(source) and not is_stream(source) and is_repeatable(index_sampler(source)):
            return ("torch",)
        return generators.GLOBAL

    def _epochs(self) -> dict[str, int]:
        return {
            path: part.epoch
            for path, part in self._holders().items()
            if type(getattr(part, "__dict__", {}).get("epoch")) is int
        }

    def length_of(self, part: Any) -> int | None:
        """The length of the base, the source or the dataset; None where it is not known."""
        if is_stream(self.base):
            return None  # a length given by an iterable dataset is a guess
        try:
            return len(part)
        except TypeError:
            return None


def _set_epoch(holder: Any, epoch: int) -> None:
    if hasattr(holder, "set_epoch"):
        holder.set_epoch(epoch)
    else:
        holder.epoch = epoch

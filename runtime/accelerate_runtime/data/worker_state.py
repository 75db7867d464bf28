"""Loaders that fetch in workers: where each worker's random generators and stream are, and starting workers there.

The worker that fetches a batch tells with it which of its random states the batch has changed (mostly none), and where
its stream is, so that the process knows how each worker was after the last batch that the script has got. Workers
themselves are further: they fetch ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torch.utils.data._utils.worker import _IterableDatasetStopIteration
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from . import generators
from .indices import IndicesFrom
from .loaders import copy_with, index_attribute, is_stream
from .parcels import Parcel
from .stand_in import StandIn
from .streams import IterableDatasetShard, can_seek

Report = dict[str, Any]  # "generators": those that changed, "dataset": where the stream is


class Reported(Parcel):
    """A batch with the report of the worker that made it."""

    __slots__ = ("report",)

    def __init__(self, value: Any, report: Report) -> None:
        super().__init__(value)
        self.report = report


class BeginWorker:
    """A `worker_init_fn` that calls `own`, then brings the worker to where `crew` says it was."""

    def __init__(self, own: Callable[[int], object] | None, collate: ReportingCollate, crew: Crew) -> None:
        self.own, self.collate, self.crew = own, collate, crew

    def __call__(self, worker: int) -> None:
        if self.own is not None:
            self.own(worker)
        info = get_worker_info()
        assert info is not None
        dataset: Any = info.dataset
        dataset = dataset.dataset if isinstance(dataset, _EndedIn) else dataset
        inner = dataset.dataset if isinstance(dataset, IterableDatasetShard) else dataset
        held = generators.held_generators({"dataset": inner, "collate_fn": self.collate.own})
        found = generators.global_generators() | held
        generators.write(generators.unpack(self.crew.before.get(worker, {}).get("generators", {})), found)
        report = self.crew.reports.get(worker, {})
        if "dataset" in report:
            dataset.load_state_dict(generators.unpack(report["dataset"]["state"]))
            if isinstance(dataset, IterableDatasetShard):
                dataset.generators_at_start = generators.read(found)
        generators.write(generators.unpack(report.get("generators", {})), found)
        self.collate.begin(dataset, found)


class ReportingCollate:
    """A loader's `collate_fn` that adds the worker's report to the batch.

    Args:
        size: the samples of a batch of a stream; None where it has no fixed size.
    """

    def __init__(self, own: Callable[[Any], Any], size: int | None) -> None:
        self.own, self.size = own, size
        self._generators: generators.Generators = {}
        self._last: generators.States = {}
        self._dataset: Any = None

    def begin(self, dataset: Any, found: generators.Generators) -> None:
        """The worker has begun."""
        self._generators, self._last = found, generators.read(found)
        self._dataset = dataset if can_seek(dataset) else None

    def __call__(self, samples: Any) -> Any:
        batch = self.own(samples)
        now = generators.read(self._generators, self._last)
        changed = {name: state for name, state in now.items() if not generators.same(state, self._last[name])}
        self._last = now
        report: Report = {}
        if changed:
            report["generators"] = generators.pack(changed)
        if self._dataset is not None:
            ended = self.size is not None and len(samples) < self.size
            report["dataset"] = {"state": generators.pack(self._dataset.state_dict()), "ended": ended}
        return Reported(batch, report) if report else batch


class _EndedIn(StandIn, IterableDataset[Any]):
    """A stream whose next pass gives nothing in some workers."""

    stands_for = "dataset"

    def __init__(self, dataset: Any, workers: list[int]) -> None:
        self.dataset, self.workers = dataset, workers

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        ended, self.workers = self.workers, []
        return iter(() if info is not None and info.id in ended else self.dataset)


@dataclass
class Crew:
    """Where the workers of a loader are.

    Attributes:
        count: how many they are.
        seed: what they were seeded by; None draws one.
        created: whether they were made for the pass (and a seed drawn); else they had been there.
        turn: the worker that gives the next batch.
        reports: how each was after the last batch that it gave.
        before: how each was when the pass began.
    """

    count: int
    seed: int | None = None
    created: bool = True
    turn: int = 0
    reports: dict[int, Report] = field(default_factory=dict)
    before: dict[int, Report] = field(default_factory=dict)

    def as_it_began(self) -> Crew:
        """The same workers where this pass began."""
        return Crew(self.count, self.seed, self.created, reports=self.before, before=self.before)

    def at_start(self) -> Crew:
        """The same workers where another pass begins."""
        reports = {worker: {"generators": report.get("generators", {})} for worker, report in self.reports.items()}
        return Crew(self.count, self.seed, created=False, reports=reports, before=reports)


class Workers(_MultiProcessingDataLoaderIter):
    """An iterator over `source` whose workers report.

    Args:
        source: a loader with workers, which makes its iterators as DataLoader does.
        indices: what to take indices from in the first pass.
        crew: how to start the workers.
    """

    def __init__(self, source: DataLoader[Any], indices: IndicesFrom | None, crew: Crew) -> None:
        self.crew = crew
        self._forced = crew.seed
        self._turns = self.crew.turn
        super().__init__(_with_reports(source, indices, self.crew))
        self._index_sampler = source._index_sampler  # of later passes

    @property
    def _base_seed(self) -> Any:
        return self.crew.seed

    @_base_seed.setter
    def _base_seed(self, drawn: Any) -> None:
        self.crew.seed = drawn if self._forced is None else self._forced

    def restart(self, source: DataLoader[Any], indices: IndicesFrom | None, turn: int) -> None:
        """Begin another pass with the same workers.

        Args:
            turn: the worker that gives the first batch.
        """
        if indices is not None:
            self._index_sampler = indices
        self._turns = turn
        self._reset(source)
        self.crew.turn = turn
        self._index_sampler = source._index_sampler

    def settle(self) -> None:
        """Wait for what the workers still fetch for a pass that is over, to know how they are after it."""
        for task in [task for task, info in sorted(self._task_info.items()) if len(info) == 2]:
            self._note(*self._task_info.pop(task))
        while any(self._workers_status[worker] for (worker,) in self._task_info.values()):
            task, data = self._get_data()  # type: ignore[no-untyped-call]
            self._tasks_outstanding -= 1
            (worker,) = self._task_info.pop(task)
            if isinstance(data, _IterableDatasetStopIteration):
                self._workers_status[worker] = False
            else:
                self._note(worker, data)

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        if not first_iter:
            self.settle()
            self.crew = self.crew.at_start()
        super()._reset(loader, first_iter)

    def _try_put_index(self) -> None:
        while self._turns:
            next(self._worker_queue_idx_cycle)
            self._turns -= 1
        super()._try_put_index()

    def _process_data(self, data: Any, worker_idx: int) -> Any:
        data = self._note(worker_idx, data)
        self.crew.turn = (worker_idx + 1) % self._num_workers
        return super()._process_data(data, worker_idx)  # type: ignore[no-untyped-call]

    def _note(self, worker: int, data: Any) -> Any:
        """The batch itself, the worker's report being kept."""
        if type(data) is not Reported:
            return data
        known = self.crew.reports.get(worker, {})
        changed = {**known.get("generators", {}), **data.report.get("generators", {})}
        report = {**known, **data.report, "generators": changed}
        self.crew.reports = {**self.crew.reports, worker: report}  # a new one: somebody may have kept the old
        return data.value


def _with_reports(source: DataLoader[Any], indices: IndicesFrom | None, crew: Crew) -> DataLoader[Any]:
    """A copy of `source` for the iterator to read."""
    size = source.batch_size if is_stream(source) else None
    collate = ReportingCollate(source.collate_fn, size)
    replaced: dict[str, Any] = {
        "collate_fn": collate,
        "worker_init_fn": BeginWorker(source.worker_init_fn, collate, crew),
    }
    if indices is not None:
        replaced[index_attribute(source)] = indices
    if not crew.created:
        replaced["generator"] = torch.Generator()  # the seed is known, and must not be drawn
    if ended := [worker for worker, report in crew.reports.items() if report.get("dataset", {}).get("ended")]:
        replaced["dataset"] = _EndedIn(source.dataset, ended)
    return copy_with(source, **replaced)

"""Trackers: which are chosen, what they are given, when they end."""

from __future__ import annotations

import json
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from accelerate_runtime import Accelerator, ProjectConfiguration
from accelerate_runtime.tracking import (
    LOGGER_TYPE_TO_CLASS,
    GeneralTracker,
    JSONLinesTracker,
    LoggerType,
    WandBTracker,
    filter_trackers,
    get_available_trackers,
    on_main_process,
    register_tracker_class,
)
from accelerate_runtime.tracking.values import images, plain, table


class Remembering(GeneralTracker):
    """Keeps what it is told."""

    name = "remembering"
    requires_logging_directory = False

    def __init__(self, project: str = "", **options: Any) -> None:
        super().__init__()
        self.heard: list[Any] = [("made", project, options)] if project or options else []

    @property
    def tracker(self) -> list[Any]:
        return self.heard

    def start(self) -> None:
        self.heard.append("start")

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.heard.append(values)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.heard.append((step, values, kwargs))

    def finish(self) -> None:
        self.heard.append("finish")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> type[Remembering]:
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "remembering", Remembering)
    return Remembering


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_tracker_hears_everything_in_order() -> None:
    tracker = Remembering()
    accelerator = Accelerator(log_with=tracker)
    assert tracker.heard == []
    accelerator.init_trackers("project", {"lr": 0.1})
    accelerator.log({"loss": 0.5}, step=3, log_kwargs={"remembering": {"commit": True}})
    assert accelerator.get_tracker("remembering") is tracker
    assert accelerator.get_tracker("remembering", unwrap=True) is tracker.heard
    accelerator.end_training()
    accelerator.end_training()
    assert tracker.heard == ["start", {"lr": 0.1}, (3, {"loss": 0.5}, {"commit": True}), "finish"]
    assert accelerator.trackers == [tracker]


@pytest.mark.parametrize("choice", ["remembering", Remembering])
def test_a_class_is_made_with_the_project_and_its_own_options(choice: Any, registered: type[Remembering]) -> None:
    accelerator = Accelerator(log_with=[choice, choice])
    accelerator.init_trackers("project", init_kwargs={"remembering": {"tags": ["a"]}})
    assert [tracker.heard for tracker in accelerator.trackers if isinstance(tracker, Remembering)] == [
        [("made", "project", {"tags": ["a"]}), "start"]
    ]


def test_tensors_and_arrays_of_one_number_are_logged_as_numbers() -> None:
    tracker = Remembering()
    accelerator = Accelerator(log_with=tracker)
    accelerator.init_trackers("project")
    loss = torch.tensor(0.25, requires_grad=True)
    accelerator.log({"loss": loss, "f1": np.float32(0.5), "count": torch.tensor([3]), "both": {"a": torch.tensor(1)}})
    _, values, _ = tracker.heard[-1]
    assert values == {"loss": 0.25, "f1": 0.5, "count": 3, "both": {"a": 1}}
    assert [type(value) for value in values.values()] == [float, float, int, dict]
    larger = plain({"weights": torch.ones(2, requires_grad=True), "text": "x"})
    assert torch.equal(larger["weights"], torch.ones(2))
    assert not larger["weights"].requires_grad


def test_a_second_project_ends_the_first(registered: type[Remembering]) -> None:
    own = Remembering()
    own.name = "own"
    accelerator = Accelerator(log_with=["remembering", own])
    accelerator.init_trackers("first")
    first = accelerator.get_tracker("remembering")
    accelerator.init_trackers("second")
    assert first.heard[-1] == "finish"
    second = accelerator.get_tracker("remembering")
    accelerator.end_training()
    assert first.heard == [("made", "first", {}), "start", "finish"]
    assert second.heard == [("made", "second", {}), "start", "finish"]
    assert own.heard == ["start", "finish"]


def test_a_tracker_that_fails_to_end_keeps_no_other_from_it() -> None:
    class Failing(Remembering):
        name = "failing"

        def finish(self) -> None:
            raise OSError("no space left")

    others = Remembering(), Remembering()
    accelerator = Accelerator(log_with=[others[0], Failing(), others[1]])
    accelerator.init_trackers("project")
    with pytest.raises(OSError, match="no space left"):
        accelerator.end_training()
    assert [other.heard for other in others] == [["start", "finish"]] * 2
    accelerator.end_training()


def test_unknown_names_are_told_with_those_allowed() -> None:
    with pytest.raises(ValueError, match=r"log_with='tensorbord': allowed are aim, all, .*tensorboard, trackio, wandb"):
        Accelerator(log_with="tensorbord")
    with pytest.raises(ValueError, match="log_with=3: pass a name"):
        Accelerator(log_with=3)
    accelerator = Accelerator(log_with=Remembering())
    with pytest.raises(ValueError, match=r"init_kwargs: there is no tracker 'wanb'; known are aim, .*remembering"):
        accelerator.init_trackers("project", init_kwargs={"wanb": {}})
    accelerator.init_trackers("project", init_kwargs={"wandb": {"for": "when it is asked for"}})
    with pytest.raises(ValueError, match="log_kwargs: there is no tracker 'wanb'"):
        accelerator.log({}, log_kwargs={"wanb": {}})
    with pytest.raises(ValueError, match=r"'wandb'.*the trackers are remembering"):
        accelerator.get_tracker("wandb")


def test_a_missing_client_is_told_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match="log_with='wandb' needs wandb, which is not installed: pip install wandb"):
        Accelerator(log_with="wandb")
    assert LoggerType.WANDB not in get_available_trackers()


def test_a_folder_of_a_clients_name_is_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "aim_runs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(WandBTracker, "packages", ("aim_runs",))
    with pytest.raises(ImportError, match="pip install aim_runs"):
        Accelerator(log_with="wandb")


def test_all_is_each_whose_client_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for tracker in LOGGER_TYPE_TO_CLASS.values():
        monkeypatch.setattr(tracker, "packages", ("json",) if tracker.name in ("wandb", "tensorboard") else ())
    own = Remembering()
    chosen = filter_trackers(["all", own, "jsonl"], tmp_path)
    assert chosen == [LoggerType.TENSORBOARD, LoggerType.WANDB, own, LoggerType.JSONL]
    assert [str(one) for one in chosen[:2]] == ["tensorboard", "wandb"]
    monkeypatch.setattr(LOGGER_TYPE_TO_CLASS["wandb"], "packages", ())
    monkeypatch.setattr(LOGGER_TYPE_TO_CLASS["tensorboard"], "packages", ())
    with pytest.warns(UserWarning, match="nothing is logged"):
        assert filter_trackers("all") == []


def test_a_tracker_that_keeps_files_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Logging with `jsonl` requires a `logging_dir`: pass project_dir"):
        Accelerator(log_with="jsonl")
    config = ProjectConfiguration(project_dir=str(tmp_path / "project"), logging_dir=str(tmp_path / "logs"))
    accelerator = Accelerator(log_with=LoggerType.JSONL, project_config=config)
    accelerator.init_trackers("run")
    accelerator.end_training()
    assert (tmp_path / "logs" / "run.jsonl").exists()


def test_classes_are_registered_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(LOGGER_TYPE_TO_CLASS, "remembering", raising=False)
    register_tracker_class(Remembering)
    try:
        assert Accelerator(log_with="remembering").log_with == ["remembering"]
        with pytest.warns(UserWarning, match="takes the place of Remembering as 'remembering'"):
            register_tracker_class(Remembering)
    finally:
        del LOGGER_TYPE_TO_CLASS["remembering"]
    with pytest.raises(ValueError, match="<class 'dict'> is not a subclass of GeneralTracker"):
        register_tracker_class(dict)  # type: ignore[arg-type]
    nameless = type("Nameless", (GeneralTracker,), {"requires_logging_directory": False})
    with pytest.raises(ValueError, match="Nameless does not define `name`"):
        register_tracker_class(nameless)


def test_packages_offer_trackers_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("theirs", f"{__name__}:Remembering", "accelerate_runtime.trackers")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == point.group else [])
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda self: Remembering)
    accelerator = Accelerator(log_with="theirs")
    accelerator.init_trackers("project")
    assert isinstance(accelerator.trackers[0], Remembering)


def test_a_tracker_must_say_what_it_is() -> None:
    class Incomplete(GeneralTracker):
        name = "incomplete"

    with pytest.raises(NotImplementedError, match="Incomplete does not define `requires_logging_directory`, `tracker`"):
        Incomplete()
    with pytest.raises(NotImplementedError, match="'remembering' does not log images"):
        Remembering().log_images({})


def test_without_trackers_nothing_happens() -> None:
    accelerator = Accelerator()
    accelerator.init_trackers("project", {"lr": 0.1})
    accelerator.log({"loss": 1.0})
    blank = accelerator.get_tracker("wandb", unwrap=True)
    blank.config.update({"a": 1})
    blank["key"] = 1
    with blank.open("x") as file:
        file.write(blank["key"])
    blank.log_images({})
    blank.log_table("t")
    accelerator.end_training()
    assert accelerator.trackers == accelerator.log_with == []


def test_logging_before_the_trackers_start_is_told_once() -> None:
    accelerator = Accelerator(log_with=Remembering())
    with pytest.warns(UserWarning, match=r"init_trackers\(\) was not called; nothing is logged"):
        accelerator.log({"loss": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accelerator.log({"loss": 1.0})


def test_a_method_runs_on_the_main_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Guarded(Remembering):
        @on_main_process
        def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
            super().log(values, step)

    tracker, everywhere = Guarded(), Guarded()
    everywhere.main_process_only = False
    monkeypatch.setenv("RANK", "1")  # and no Accelerator yet: the environment tells
    for one in (tracker, everywhere):
        one.log({"loss": 1.0})
    assert (tracker.heard, everywhere.heard) == ([], [(None, {"loss": 1.0}, {})])


def test_json_lines(tmp_path: Path) -> None:
    for attempt in range(2):
        accelerator = Accelerator(log_with="jsonl", project_dir=tmp_path / "runs")
        accelerator.init_trackers("trial", {"attempt": attempt, "path": tmp_path})
        accelerator.log(
            {"loss": torch.tensor(0.5), "curve": torch.arange(3)}, step=7, log_kwargs={"jsonl": {"fold": 2}}
        )
        accelerator.get_tracker("jsonl").log_table("answers", ["q", "a"], [["1+1", np.int64(2)]])
        accelerator.end_training()
    lines = lines_of(tmp_path / "runs" / "trial.jsonl")
    assert [line.pop("time") > 1e9 for line in lines] == [True] * 6
    entry = {"step": 7, "values": {"loss": 0.5, "curve": [0, 1, 2]}, "fold": 2}
    rows = {"step": None, "table": "answers", "columns": ["q", "a"], "rows": [["1+1", 2]]}
    expected = [[{"config": {"attempt": attempt, "path": str(tmp_path)}}, entry, rows] for attempt in range(2)]
    assert lines == [*expected[0], *expected[1]]


def test_a_json_line_is_in_the_file_at_once_and_a_torn_one_is_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "trial.jsonl"
    path.write_text('{"step": 0}\n{"step": 1, "val')
    tracker = JSONLinesTracker("trial", tmp_path)
    tracker.start()
    tracker.log({"loss": 1.0}, step=1)
    assert [line["step"] for line in lines_of(path)] == [0, 1]
    tracker.finish()
    with pytest.raises(ValueError, match="is not open: log between"):
        tracker.log({"loss": 1.0})
    path.write_text("x" * 200_000)
    JSONLinesTracker("trial", tmp_path).start()
    assert path.read_text() == ""


def test_images_and_tables_come_in_several_forms() -> None:
    picture = np.zeros((4, 5, 3))
    assert [len(images(value)) for value in (picture, [picture] * 2, torch.zeros(3, 4, 5, 3))] == [1, 2, 3]
    assert isinstance(images([torch.zeros(4, 5)])[0], np.ndarray)
    assert table(["a"], [[torch.tensor(1)]], None) == (["a"], [[1]])
    with pytest.raises(ValueError, match="neither data nor dataframe"):
        table(["a"], None, None)

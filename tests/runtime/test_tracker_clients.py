"""Each tracker against its own client library: a run logs offline in a process of its own, and its files are read back.

A client that is not installed is skipped by name; `make test-trackers` installs them all.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelerate_runtime.requirements import is_installed

SCRIPT = Path(__file__).parent / "scripts" / "logging_run.py"
LOSSES = [(0, pytest.approx(1.0)), (1, pytest.approx(0.5)), (2, pytest.approx(1 / 3))]
CONFIG = {"learning_rate": 0.01, "epochs": 3, "nesterov": False, "optimizer": "sgd"}

pytestmark = pytest.mark.e2e


def log(name: str, folder: Path, ending: str = "", **init_kwargs: Any) -> str:
    """What a run of scripts/logging_run.py printed; it must end well unless it is told to crash."""
    if not is_installed(name):
        pytest.skip(f"could not import {name!r}: it is not installed")
    nowhere = {"NO_PROXY": "", "HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    offline = {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "CLEARML_OFFLINE_MODE": "1",
        "CLEARML_CACHE_DIR": str(folder),
        "COMET_OFFLINE_DIRECTORY": str(folder),
        "TRACKIO_DIR": str(folder),
        "SWANLAB_MODE": "offline",
        "SWANLAB_LOG_DIR": str(folder),
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DVC_NO_ANALYTICS": "1",
    }
    command = [sys.executable, str(SCRIPT), name, str(folder), json.dumps(init_kwargs), *([ending] if ending else [])]
    environment = {**os.environ, **nowhere, **offline}
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, cwd=folder)
    assert (run.returncode == 0) == (ending != "crash"), run.stderr[-4000:]
    return run.stdout


@pytest.mark.parametrize("ending", ["", "forget"])
def test_tensorboard(tmp_path: Path, ending: str) -> None:
    assert ("does not log tables" in log("tensorboard", tmp_path, ending)) == (not ending)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(tmp_path / "trial"), size_guidance={})
    read.Reload()
    assert [(event.step, event.value) for event in read.Scalars("loss")] == LOSSES
    (hyperparameters,) = tmp_path.glob("trial/*/hparams.yml")
    assert yaml.safe_load(hyperparameters.read_text()) == CONFIG
    if not ending:
        assert [(read.Images(f"picture/{i}")[0].width, read.Images(f"picture/{i}")[0].height) for i in (0, 1)] == [
            (9, 8)
        ] * 2


@pytest.mark.parametrize(("ending", "code"), [("", 0), ("crash", 1)])
def test_wandb(tmp_path: Path, ending: str, code: int) -> None:
    log("wandb", tmp_path, ending)
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    records = []
    for block in level_db_records(file.read_bytes()[7:]):
        records.append(Record())
        records[-1].ParseFromString(block)
    history = [
        {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.HasField("history")
    ]
    assert [(entry["_step"], entry["loss"]) for entry in history[:3]] == LOSSES
    config = {
        item.key: json.loads(item.value_json)
        for record in records
        for item in (*record.config.update, *record.run.config.update)
    }
    assert config.items() >= CONFIG.items()
    assert {record.run.project for record in records if record.HasField("run")} == {"trial"}
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [code]
    if not ending:
        assert len([*tmp_path.rglob("media/images/picture_*.png")]) == 2
        (table,) = tmp_path.rglob("media/table/answers_*.json")
        assert json.loads(table.read_text())["data"] == [["1+1", 2], ["2+2", 4]]


def level_db_records(data: bytes) -> list[bytes]:
    """The records of a log in LevelDB's format: blocks of 32 KiB, each piece with its checksum, length and kind."""
    records, at, open_record = [], 0, b""
    while at + 7 <= len(data):
        room = 32768 - (at + 7) % 32768
        if room < 7:
            at += room
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        open_record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole one, or its last piece
            records.append(open_record)
            open_record = b""
    return records


@pytest.mark.parametrize("ending", ["", "forget"])
def test_mlflow(tmp_path: Path, ending: str) -> None:
    log("mlflow", tmp_path, ending)
    with sqlite3.connect(tmp_path / "mlflow.db") as store:
        metrics = store.execute("select step, value from metrics where key = 'loss' order by step").fetchall()
        assert metrics == LOSSES
        assert dict(store.execute("select key, value from params")) == {
            key: str(value) for key, value in CONFIG.items()
        }
        assert store.execute("select status from runs").fetchall() == [("FINISHED",)]
        assert ("trial",) in store.execute("select name from experiments").fetchall()
    if not ending:
        assert len([*tmp_path.rglob("artifacts/images/picture*.png")]) == 2
        (table,) = tmp_path.rglob("artifacts/answers.json")
        assert json.loads(table.read_text()) == {"columns": ["question", "answer"], "data": [["1+1", 2], ["2+2", 4]]}


@pytest.mark.parametrize("ending", ["", "forget", "crash"])
def test_comet(tmp_path: Path, ending: str) -> None:
    log("comet_ml", tmp_path, ending, online=False)
    (file,) = tmp_path.glob("*.zip")
    with zipfile.ZipFile(file) as archive:
        payloads = [json.loads(line)["payload"] for line in archive.read("messages.json").decode().splitlines()]
    metrics = [payload["metric"] for payload in payloads if payload.get("metric")]
    losses = [(one["step"], one["metricValue"]) for one in metrics if one["metricName"] == "loss"]
    assert losses == LOSSES
    parameters = [payload["param"] for payload in payloads if payload.get("param")]
    assert {one["paramName"]: one["paramValue"] for one in parameters}.items() >= CONFIG.items()


@pytest.mark.parametrize("ending", ["", "forget"])
def test_aim(tmp_path: Path, ending: str) -> None:
    log("aim", tmp_path, ending)
    from aim import Repo

    repository = Repo(str(tmp_path))
    (run,) = repository.list_all_runs()
    (meta,) = repository.request_tree("meta", run, read_only=True).subtree("meta")["chunks"].values()
    assert meta["attrs"]["hparams"] == CONFIG
    assert meta["end_time"]
    (traces,) = meta["traces"].values()
    assert (traces["loss"]["first"], traces["loss"]["last_step"]) == (1.0, 2)
    assert traces["loss"]["last"] == LOSSES[-1][1]
    assert ending or traces["picture"]["dtype"] == "list(aim.image)"


@pytest.mark.parametrize("ending", ["", "forget"])
def test_clearml(tmp_path: Path, ending: str) -> None:
    log("clearml", tmp_path, ending)
    (file,) = tmp_path.glob("offline/*.zip")
    with zipfile.ZipFile(file) as archive:
        entries = [one for line in archive.read("metrics.jsonl").decode().splitlines() for one in json.loads(line)]
        task = json.loads(archive.read("task.json"))
        pictures = [name for name in archive.namelist() if "/picture/" in name]
    losses = [(one["iter"], one["value"]) for one in entries if one["metric"] == "loss"]
    assert losses == LOSSES
    assert {one["variant"] for one in entries if one["metric"] == "acc"} == {"train"}
    assert "learning_rate = 0.01" in task["configuration"]["General"]["value"]
    if not ending:
        assert len(pictures) == 2
        (table,) = [json.loads(one["plot_str"]) for one in entries if one["metric"] == "answers"]
        assert table["data"][0]["header"]["values"] == ["question", "answer"]


@pytest.mark.parametrize("ending", ["", "forget"])
def test_dvclive(tmp_path: Path, ending: str) -> None:
    log("dvclive", tmp_path, ending, dir=str(tmp_path / "live"), save_dvc_exp=False, dvcyaml=None)
    rows = [line.split("\t") for line in (tmp_path / "live/plots/metrics/loss.tsv").read_text().splitlines()]
    assert rows[0] == ["step", "loss"]
    assert [(int(step), float(value)) for step, value in rows[1:]] == LOSSES
    assert yaml.safe_load((tmp_path / "live/params.yaml").read_text()) == CONFIG
    assert json.loads((tmp_path / "live/metrics.json").read_text())["step"] == 2
    assert ending or (tmp_path / "live/plots/images/picture_1.png").exists()


@pytest.mark.parametrize("ending", ["", "forget", "crash"])
def test_swanlab(tmp_path: Path, ending: str) -> None:
    log("swanlab", tmp_path, ending)
    (folder,) = tmp_path.glob("run-*")
    config = yaml.safe_load((folder / "files/config.yaml").read_text())
    assert {key: entry["value"] for key, entry in config.items()} == CONFIG
    (file,) = folder.glob("*.swanlab")
    assert b"loss" in file.read_bytes()
    assert ending or len([*folder.glob("media/image/*.png")]) == 2


@pytest.mark.parametrize("ending", ["", "forget", "crash"])
def test_trackio(tmp_path: Path, ending: str) -> None:
    log("trackio", tmp_path, ending)
    with sqlite3.connect(tmp_path / "trial.db") as store:
        rows = [(step, json.loads(values)) for step, values in store.execute("select step, metrics from metrics")]
        assert [(step, values["loss"]) for step, values in rows[:3]] == LOSSES
        ((config,),) = store.execute("select config from configs").fetchall()
        assert json.loads(config).items() >= CONFIG.items()
    if not ending:
        assert len([*tmp_path.rglob("media/**/*.png")]) == 2
        assert rows[-1][1]["answers"]["_value"] == [{"question": "1+1", "answer": 2}, {"question": "2+2", "answer": 4}]


def test_json_lines_outlive_a_crash(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "jsonl", str(tmp_path), "{}", "crash"]
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == 1
    lines = [json.loads(line) for line in (tmp_path / "trial.jsonl").read_text().splitlines()]
    assert lines[0]["config"] == CONFIG
    assert [(line["step"], line["values"]["loss"]) for line in lines[1:]] == LOSSES

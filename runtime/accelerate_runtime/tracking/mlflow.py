"""MLflow."""

from __future__ import annotations

import json
import os
from typing import Any

from ..environment import parse_flag_from_env
from .base import GeneralTracker, on_main_process
from .values import images, left_out, plain


class MLflowTracker(GeneralTracker):
    """Logs to a run of MLflow.

    The environment variables MLFLOW_EXPERIMENT_NAME, MLFLOW_RUN_ID, MLFLOW_TAGS and MLFLOW_NESTED_RUN win over the
    arguments.

    Args:
        experiment_name: the experiment (the project's name); made if it does not exist.
        logging_dir: where a new experiment keeps its artifacts.
        run_id: a run to go on with.
        tags: tags of a new experiment and of the run, or their JSON.
        nested_run: whether the run is nested in the active one.
        run_name, description: of a new run.
    """

    name = "mlflow"
    requires_logging_directory = False
    packages = ("mlflow",)
    ends_with_interpreter = True

    def __init__(
        self,
        experiment_name: str | None = None,
        logging_dir: str | os.PathLike[str] | None = None,
        run_id: str | None = None,
        tags: dict[str, Any] | str | None = None,
        nested_run: bool = False,
        run_name: str | None = None,
        description: str | None = None,
    ) -> None:
        super().__init__()
        tags = os.environ.get("MLFLOW_TAGS", tags)
        self.experiment_name = os.environ.get("MLFLOW_EXPERIMENT_NAME", experiment_name)
        self.logging_dir = None if logging_dir is None else os.fspath(logging_dir)
        self.run_id = os.environ.get("MLFLOW_RUN_ID", run_id)
        self.tags = json.loads(tags) if isinstance(tags, str) else tags
        self.nested_run = parse_flag_from_env("MLFLOW_NESTED_RUN", nested_run)
        self.run_name = run_name
        self.description = description
        self.active_run: Any = None

    @on_main_process
    def start(self) -> None:
        import mlflow

        known = mlflow.get_experiment_by_name(self.experiment_name)
        experiment = known.experiment_id if known is not None else None
        if experiment is None:
            experiment = mlflow.create_experiment(
                self.experiment_name, artifact_location=self.logging_dir, tags=self.tags
            )
        self.active_run = mlflow.start_run(
            run_id=self.run_id,
            experiment_id=experiment,
            run_name=self.run_name,
            nested=self.nested_run,
            tags=self.tags,
            description=self.description,
        )

    @property
    def tracker(self) -> Any:
        """The run."""
        return self.active_run

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Keep `values` as parameters; one whose text is longer than MLflow takes is left out, with a warning."""
        import mlflow
        from mlflow.utils.validation import MAX_PARAM_VAL_LENGTH, MAX_PARAMS_TAGS_PER_BATCH

        fitting = []
        for key, value in values.items():
            if len(str(value)) <= MAX_PARAM_VAL_LENGTH:
                fitting.append((key, value))
            else:
                left_out("MLflow", key, value, f"parameters of at most {MAX_PARAM_VAL_LENGTH} characters")
        for begin in range(0, len(fitting), MAX_PARAMS_TAGS_PER_BATCH):
            mlflow.log_params(dict(fitting[begin : begin + MAX_PARAMS_TAGS_PER_BATCH]))

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log numbers; `kwargs` are arguments of `mlflow.log_metrics`."""
        import mlflow

        metrics = {}
        for key, value in plain(values).items():
            if isinstance(value, (int, float)):
                metrics[key] = value
            else:
                left_out("MLflow", key, value, "numbers")
        mlflow.log_metrics(metrics, step=step, **kwargs)

    @on_main_process
    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        import mlflow

        for key, value in values.items():
            for image in images(value):
                mlflow.log_image(image, key=key, step=step, **kwargs)

    def write_table(
        self, name: str, columns: list[str] | None, rows: list[list[Any]], step: int | None, **kwargs: Any
    ) -> None:
        """Log a table as the artifact `<name>.json`; MLflow keeps no step, and appends to one that exists."""
        import mlflow

        names = columns or [str(index) for index in range(len(rows[0]) if rows else 0)]
        by_column = {name: [row[index] for row in rows] for index, name in enumerate(names)}
        mlflow.log_table(by_column, artifact_file=f"{name}.json", **kwargs)

    @on_main_process
    def log_figure(self, figure: Any, artifact_file: str, **save_kwargs: Any) -> None:
        """Keep a figure of matplotlib or plotly as an artifact; `save_kwargs` are arguments of `mlflow.log_figure`."""
        import mlflow

        mlflow.log_figure(figure=figure, artifact_file=artifact_file, **save_kwargs)

    @on_main_process
    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Keep a folder's files as artifacts, in the run's folder `artifact_path`."""
        import mlflow

        mlflow.log_artifacts(local_dir=local_dir, artifact_path=artifact_path)

    @on_main_process
    def log_artifact(self, local_path: str, artifact_path: str | None = None) -> None:
        """Keep a file as an artifact, in the run's folder `artifact_path`."""
        import mlflow

        mlflow.log_artifact(local_path=local_path, artifact_path=artifact_path)

    @on_main_process
    def finish(self) -> None:
        import mlflow

        mlflow.end_run()

"""Scores of downstream tasks in MLflow: pretraining -> task -> cell as nested runs, with data, figures and answers."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from orchestration.tracking.metadata import (
    FOLDER,
    LONGEST,
    NOTE,
    flattened,
    git_tags,
    hardware,
    libraries,
    log_dataset,
)
from orchestration.tracking.runs import OWNER, Owner, Tracked, client_of

if TYPE_CHECKING:  # it takes a second to import
    from matplotlib.figure import Figure

BATCH = 500  # points in one call; MLflow takes at most a thousand
PARAMS = 100  # parameters in one call; it takes no more


@dataclass(frozen=True)
class CellRecord:
    """One cell of a grid: what it was tuned with, its scores, its losses by update."""

    name: str
    params: Mapping[str, Any]
    scores: Mapping[str, float]
    losses: Sequence[float] = ()


@dataclass(frozen=True)
class TaskRecord:
    """A task: what goes to its own run, and what stands for the whole pretraining."""

    name: str
    params: Mapping[str, Any]
    series: Mapping[str, Sequence[float]]  # value i at step i, a seed
    headline: Mapping[str, float]  # of the run of the pretraining, under `eval/<task>/`
    figures: Mapping[str, "Figure"] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # texts by name
    step: int | None = None  # of the pretraining, where the weights are those of a checkpoint
    labels: int = 0  # labelled rows, where a number was asked for
    dataset: str = ""  # digest of the questions and answers
    cells: Sequence[CellRecord] = ()


def log_task(tracked: Tracked, record: TaskRecord) -> None:
    """A finished child run of `tracked` with a child of its own for each cell; its headline goes to `tracked`, at the
    step of the pretraining, and a second time at the number of labels: MLflow draws both as curves."""
    from mlflow.entities import Metric

    client = client_of(tracked.uri)
    parent = client.get_run(tracked.run_id)
    name = f"eval/{record.name}" + (f" at step {record.step:,}" if record.step is not None else "")
    name += f" with {record.labels:,} labels" if record.labels else ""
    with _child(client, parent, f"{name} of {parent.info.run_name}") as child:
        points = [(key, value, step) for key, values in record.series.items() for step, value in enumerate(values)]
        _log(client, child, points, record.params)
        if record.dataset:
            _log_dataset(client, child, record)
        for file, figure in record.figures.items():
            client.log_figure(child, figure, f"figures/{file}.png")
        for file, text in record.files.items():
            client.log_text(child, text, file)
        for cell in record.cells:
            with _child(client, client.get_run(child), cell.name) as run_id:
                losses = [("loss", loss, number + 1) for number, loss in enumerate(cell.losses)]
                _log(client, run_id, [*((key, value, 0) for key, value in cell.scores.items()), *losses], cell.params)
    now_ms = int(time.time() * 1000)
    means = [
        Metric(f"eval/{record.name}/{key}", value, now_ms, record.step or 0) for key, value in record.headline.items()
    ]
    if record.labels:
        by_labels = record.headline.items()
        means += [Metric(f"eval/{record.name}/by_labels/{key}", one, now_ms, record.labels) for key, one in by_labels]
    client.log_batch(tracked.run_id, means)


def log_page(tracked: Tracked, files: Mapping[str, str], figures: Mapping[str, "Figure"]) -> None:
    """The table of all tasks, as texts and as a picture."""
    client = client_of(tracked.uri)
    for name, text in files.items():
        client.log_text(tracked.run_id, text, f"scores/{name}")
    for name, figure in figures.items():
        client.log_figure(tracked.run_id, figure, f"figures/{name}.png")


@contextmanager
def _child(client: Any, parent: Any, name: str) -> Iterator[str]:
    """The id of a new nested run, which ends as the block does."""
    kept = (FOLDER, NOTE, "command", "recipe", "recipe_hash", "corpus_hash")
    tags = {key: value for key, value in parent.data.tags.items() if key in kept}
    tags |= {"mlflow.parentRunId": parent.info.run_id, "mlflow.source.name": "sesame", **git_tags()}
    tags |= {OWNER: json.dumps(asdict(Owner.me())), **libraries(), **hardware()}
    run_id = client.create_run(parent.info.experiment_id, tags=tags, run_name=name).info.run_id
    status = "FAILED"
    try:
        yield run_id
        status = "FINISHED"
    finally:
        client.set_terminated(run_id, status)


def _log(client: Any, run_id: str, points: Sequence[tuple[str, float, int]], params: Mapping[str, Any]) -> None:
    from mlflow.entities import Metric, Param

    now_ms = int(time.time() * 1000)
    metrics = [Metric(key, value, now_ms, step) for key, value, step in points]
    flat = [Param(key, value[:LONGEST]) for key, value in flattened(params).items()]
    for start in range(0, len(flat), PARAMS):
        client.log_batch(run_id, params=flat[start : start + PARAMS])
    for start in range(0, len(metrics), BATCH):
        client.log_batch(run_id, metrics[start : start + BATCH])


def _log_dataset(client: Any, run_id: str, record: TaskRecord) -> None:
    from mlflow.entities import Dataset

    profile = json.dumps({"digest": record.dataset})
    dataset = Dataset(record.name, record.dataset[:36], "local", json.dumps({"task": record.name}), profile=profile)
    log_dataset(client, run_id, dataset, "evaluation")

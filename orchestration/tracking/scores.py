"""Downstream scores in MLflow, as nested runs (pretraining -> task -> trial) with data, figures and predictions."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from orchestration.tracking import names
from orchestration.tracking.metadata import FOLDER, NOTE, flatten_params, git_tags, hardware, libraries, log_dataset
from orchestration.tracking.runs import OWNER, Owner, TrackedRun, client_of

if TYPE_CHECKING:  # the import takes a second
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class TrialRecord:
    """One trial of a grid: its hyperparameters, its scores, and its loss for each update."""

    name: str
    params: Mapping[str, Any]
    scores: Mapping[str, float]
    losses: Sequence[float] = ()


@dataclass(frozen=True)
class TaskRecord:
    """A task: the content of its own run, and its headline scores for the run of the pretraining."""

    name: str
    params: Mapping[str, Any]
    series: Mapping[str, Sequence[float]]  # value i is logged at step i; one value per seed
    headline: Mapping[str, float]  # logged in the run of the pretraining, below `eval/<task>/`
    figures: Mapping[str, "Figure"] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # texts by file name
    step: int | None = None  # pretraining step of the weights, if they are those of a checkpoint
    last: int = 0  # last pretraining step of the finished run, if it is known
    labels: int = 0  # labeled training examples, if a number was requested
    dataset: str = ""  # digest of the questions and answers
    cells: Sequence[TrialRecord] = ()


def log_task(tracked: TrackedRun, record: TaskRecord) -> None:
    """Log a finished child run of `tracked`, with a nested child for each trial.

    The headline scores go to `tracked` at the pretraining step, and again at the number of labels: MLflow draws both as
    curves.
    """
    client = client_of(tracked.uri)
    parent = client.get_run(tracked.run_id)
    name = f"eval/{record.name}" + (f" at step {record.step:,}" if record.step is not None else "")
    name += f" with {record.labels:,} labels" if record.labels else ""
    name = names.title(f"{name} of {parent.info.run_name}")
    _remove_failed(client, parent, name)
    with _child(client, parent, name) as child:
        points = [(key, value, step) for key, values in record.series.items() for step, value in enumerate(values)]
        _log(client, child, points, record.params)
        if record.dataset:
            _log_dataset(client, child, record)
        for file, figure in record.figures.items():
            client.log_figure(child, figure, names.path(f"figures/{file}.png"))
        for file, text in record.files.items():
            client.log_text(child, text, names.path(file))
        entry = client.get_run(child) if record.cells else None
        for cell in record.cells:
            with _child(client, entry, names.title(cell.name)) as run_id:
                losses = [("loss", loss, number + 1) for number, loss in enumerate(cell.losses)]
                _log(client, run_id, [*((key, value, 0) for key, value in cell.scores.items()), *losses], cell.params)
    now_ms = int(time.time() * 1000)
    step = record.last if record.step is None else record.step
    means = [(f"eval/{record.name}/{key}", one, now_ms, step) for key, one in record.headline.items()]
    if record.labels:
        by_labels = record.headline.items()
        means += [(f"eval/{record.name}/by_labels/{key}", one, now_ms, record.labels) for key, one in by_labels]
    names.log_metrics(client, tracked.run_id, means)


def log_page(tracked: TrackedRun, files: Mapping[str, str], figures: Mapping[str, "Figure"]) -> None:
    """Log the table of all tasks, as texts and as figures."""
    client = client_of(tracked.uri)
    for name, text in files.items():
        client.log_text(tracked.run_id, text, names.path(f"scores/{name}"))
    for name, figure in figures.items():
        client.log_figure(tracked.run_id, figure, names.path(f"figures/{name}.png"))


@contextmanager
def _child(client: Any, parent: Any, name: str) -> Iterator[str]:
    """The ID of a new nested run, which ends as FINISHED if the block succeeds, otherwise as FAILED."""
    inherited = (FOLDER, NOTE, "command", "recipe", "recipe_hash", "corpus_hash")
    tags = {key: value for key, value in parent.data.tags.items() if key in inherited}
    tags |= {"mlflow.parentRunId": parent.info.run_id, "mlflow.source.name": "sesame", **git_tags()}
    tags |= {OWNER: json.dumps(asdict(Owner.me())), **libraries(), **hardware()}
    run_id = client.create_run(parent.info.experiment_id, tags=tags, run_name=name).info.run_id
    status = "FAILED"
    try:
        yield run_id
        status = "FINISHED"
    finally:
        client.set_terminated(run_id, status)


def _remove_failed(client: Any, parent: Any, name: str) -> None:
    """Delete a failed run with this name and its trials, which an earlier attempt left behind."""
    for run in _children(client, parent, " and attributes.status = 'FAILED'"):
        if run.info.run_name == name:
            for each in (*_children(client, run), run):
                client.delete_run(each.info.run_id)


def _children(client: Any, run: Any, more: str = "") -> Sequence[Any]:
    where = f"tags.mlflow.parentRunId = '{run.info.run_id}'{more}"
    return client.search_runs([run.info.experiment_id], where)


def _log(client: Any, run_id: str, points: Sequence[tuple[str, float, int]], params: Mapping[str, Any]) -> None:
    now_ms = int(time.time() * 1000)
    named = [(key, value, now_ms, step) for key, value, step in points]
    names.log_values(client, run_id, named, flatten_params(params).items())


def _log_dataset(client: Any, run_id: str, record: TaskRecord) -> None:
    from mlflow.entities import Dataset

    profile = json.dumps({"digest": record.dataset})
    dataset = Dataset(
        names.title(record.name), record.dataset[:36], "local", json.dumps({"task": record.name}), profile=profile
    )
    log_dataset(client, run_id, dataset, "evaluation")

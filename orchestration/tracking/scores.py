"""Downstream scores in MLflow, as nested runs (pretraining -> task -> trial) with data, figures and predictions."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orchestration.tracking import names
from orchestration.tracking.metadata import (
    FOLDER,
    NOTE,
    flatten_params,
    git_tags,
    hardware,
    libraries,
    log_corpus,
    log_dataset,
)
from orchestration.tracking.models import FinetunedFacts, ModelVersion, find_models, log_model, register_logged
from orchestration.tracking.runs import OWNER, UNFINISHED, Owner, TrackedRun, client_of, existing_run
from preprocessing.errors import BadInput

if TYPE_CHECKING:  # the import takes a second
    from matplotlib.figure import Figure


TABLES: Final = "mlflow.loggedArtifacts"  # tag by which the UI shows files as tables
SCORES: Final = "sesame.scores"  # tag of the run of a task with the name of its directory of scores
_EVAL: Final = "eval/"  # prefix of the names of the runs of tasks
BASELINE: Final = "random_"  # prefix of scores of a randomly initialized model
_TYPES: Final[Mapping[type, str]] = {bool: "boolean", int: "long", float: "double"}  # of a schema; others are strings


@dataclass(frozen=True)
class TaskDataset:
    """The file of a split: its name, the digest of its questions, its columns with types, its number of questions."""

    name: str
    digest: str
    location: str  # absolute path, pattern or URL
    columns: Mapping[str, type]
    num_rows: int
    context: str  # training or evaluation
    is_scored: bool = False  # whether the score of the task is computed on it

    def entity(self) -> Any:
        """The dataset as an entity of MLflow; its source is the location, its schema has the columns."""
        from mlflow.entities import Dataset

        columns = [
            {"type": _TYPES.get(kind, "string"), "name": name, "required": True} for name, kind in self.columns.items()
        ]
        uri = self.location if "://" in self.location else f"file://{self.location}"
        return Dataset(
            names.title(self.name),
            self.digest[:36],  # MLflow's limit of length; the profile has the complete digest
            "local",
            json.dumps({"uri": uri}),
            json.dumps({"mlflow_colspec": columns}),
            json.dumps({"num_rows": self.num_rows, "digest": self.digest}),
        )


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
    # columns and rows of each table, by file name
    tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]]]] = field(default_factory=dict)
    note: str = ""  # description of the run in Markdown
    command: str = ""  # command line of the evaluation
    scores: str = ""  # name of its directory of scores
    step: int | None = None  # pretraining step of the weights, if they are those of a checkpoint
    last: int = 0  # last pretraining step of the finished run, if it is known
    labels: int = 0  # labeled training examples, if a number was requested
    datasets: Sequence[TaskDataset] = ()  # its files
    corpus: Path | None = None  # the corpus whose held-out documents are its questions
    cells: Sequence[TrialRecord] = ()


def log_task(tracked: TrackedRun, record: TaskRecord) -> None:
    """Log a finished child run of `tracked`, with a nested child for each trial.

    The headline scores go to `tracked` at the pretraining step, and again at the number of labels: MLflow draws both as
    curves.
    """
    client = client_of(tracked.uri)
    parent = client.get_run(tracked.run_id)
    name = _title(parent, record.name, record.step, record.labels)
    _remove_failed(client, parent, name)
    own = {"command": record.command, **git_tags(), **libraries(), **hardware()}  # once, because git is slow
    tags = own | {SCORES: record.scores} | ({NOTE: record.note} if record.note else {})
    tables = [{"path": names.path(file), "type": "table"} for file in record.tables]
    tags |= {TABLES: json.dumps(tables)} if tables else {}
    models = find_models(client, parent)[:1] if record.step is None else []  # that of the last step
    now_ms = int(time.time() * 1000)
    step = record.last if record.step is None else record.step
    means = [(f"eval/{record.name}/{key}", one, now_ms, step) for key, one in record.headline.items()]
    with _child(client, parent, name, tags) as child:
        points = [(key, value, step) for key, values in record.series.items() for step, value in enumerate(values)]
        _log(client, child, points, record.params)
        scored_on = _log_inputs(client, child, record, models)
        of_model = [point for point in means if not point[0].startswith(f"eval/{record.name}/{BASELINE}")]
        # the medians, because the UI shows the last point of a series, which is that of the last seed; those of a model
        # are in this run, because the UI finds its datasets in the runs of its metrics
        names.log_metrics(client, child, of_model, next(iter(models), ""), scored_on)
        names.log_metrics(client, child, [point for point in means if point not in of_model])
        for file, figure in record.figures.items():
            client.log_figure(child, figure, names.path(f"figures/{file}.png"))
        for file, text in record.files.items():
            client.log_text(child, text, names.path(file))
        for file, (columns, rows) in record.tables.items():
            content = json.dumps({"columns": list(columns), "data": list(rows)}, ensure_ascii=False)
            client.log_text(child, content, names.path(file))
        entry = client.get_run(child) if record.cells else None
        for cell in record.cells:
            with _child(client, entry, names.title(cell.name), own) as run_id:
                losses = [("loss", loss, number + 1) for number, loss in enumerate(cell.losses)]
                _log(client, run_id, [*((key, value, 0) for key, value in cell.scores.items()), *losses], cell.params)
    if record.labels:
        by_labels = record.headline.items()
        means += [(f"eval/{record.name}/by_labels/{key}", one, now_ms, record.labels) for key, one in by_labels]
    names.log_metrics(client, tracked.run_id, means)


def _title(parent: Any, task: str, step: int | None, labels: int) -> str:
    """The name of the run of a task."""
    name = f"{_EVAL}{task}" + (f" at step {step:,}" if step is not None else "")
    name += f" with {labels:,} labels" if labels else ""
    return names.title(f"{name} of {parent.info.run_name}")


@dataclass(frozen=True)
class FinetunedRecord:
    """A saved fine-tuned model: its task, its directory and content, and its scores by split and metric."""

    name: str  # that of the record of its task
    step: int | None
    labels: int
    score_folder: str  # name of the directory of scores of its task
    export: Path  # its directory, which belongs to the user
    about: Mapping[str, Any]  # its task, its scores and its origin, for the card
    steps: int  # updates of its fine-tuning
    scores: Mapping[str, Mapping[str, float]]
    datasets: Mapping[str, TaskDataset]  # by split


def log_finetuned(tracked: TrackedRun, folder: Path, record: FinetunedRecord) -> str:
    """Log the directory of a fine-tuned model as the model of the newest run of its task; returns its ID.

    The run is found by its directory of scores. If the task has no run, it is a model of `tracked`. Programs of the
    user may write the files in place. So they are copied first, below the run directory `folder`.
    """
    client = client_of(tracked.uri)
    parent = client.get_run(tracked.run_id)
    title = _title(parent, record.name, record.step, record.labels)
    found = _runs_of_scores(client, parent, record.score_folder, title)
    run_id, title = (found[0].info.run_id, found[0].info.run_name) if found else (tracked.run_id, title)
    if models := find_models(client, client.get_run(run_id)) if found else []:
        return models[0]
    entities = {split: dataset.entity() for split, dataset in record.datasets.items()}
    for split, dataset in record.datasets.items():
        log_dataset(client, run_id, entities[split], dataset.context)
    facts = FinetunedFacts(
        name=title.removeprefix(_EVAL),
        steps=record.steps,
        about=record.about,
        place=str(record.export.absolute()),
        scores=[
            (f"{split}_{key}", value, (entities[split].name, entities[split].digest) if split in entities else None)
            for split, values in record.scores.items()
            for key, value in values.items()
        ],
    )
    with tempfile.TemporaryDirectory(dir=folder, prefix=UNFINISHED) as copies:
        copy = shutil.copytree(record.export, Path(copies) / record.export.name)
        return log_model(replace(tracked, run_id=run_id), copy, facts)


def register_finetuned(
    folder: Path, score_folder: str, export: Path, name: str, alias: str = ""
) -> ModelVersion | None:
    """Register the fine-tuned model of a directory of scores of the run in `folder`; None if MLflow has none.

    `export`: the directory of the model. Errors are those of `register`.
    """
    tracked = existing_run(folder)
    find = partial(_find_finetuned_model, score_folder=score_folder)
    return register_logged(tracked, find, export, name, alias) if tracked else None


def _find_finetuned_model(tracked: TrackedRun, score_folder: str) -> tuple[TrackedRun, str] | None:
    """The run of a task and the ID of its fine-tuned model, the newest one of this directory of scores; None if there
    is none."""
    client = client_of(tracked.uri)
    for run in _runs_of_scores(client, client.get_run(tracked.run_id), score_folder):
        if ids := find_models(client, run):
            return replace(tracked, run_id=run.info.run_id), ids[0]
    return None


def _runs_of_scores(client: Any, parent: Any, score_folder: str, title: str = "") -> list[Any]:
    """The runs of tasks with this directory of scores, the newest first. Runs of earlier versions lack the directory;
    of these, the ones with this title."""
    runs = [
        run
        for run in _children(client, parent)
        if run.data.tags.get(SCORES, score_folder if title and run.info.run_name == title else "") == score_folder
    ]
    return sorted(runs, key=lambda run: -run.info.start_time)


def _log_inputs(client: Any, run_id: str, record: TaskRecord, models: Sequence[str]) -> tuple[str, str] | None:
    """Log the files of a task, or the corpus of its questions, and the scored model as inputs of its run. Returns name
    and digest of the dataset of the score."""
    from mlflow.entities import LoggedModelInput

    scored_on = None
    for dataset in sorted(record.datasets, key=lambda one: not one.is_scored):  # the UI shows the first one
        entity = dataset.entity()
        log_dataset(client, run_id, entity, dataset.context)
        scored_on = scored_on or ((entity.name, entity.digest) if dataset.is_scored else None)
    if record.corpus:
        try:
            scored_on = log_corpus(client, run_id, record.corpus, "evaluation")
        except BadInput:  # the corpus was deleted or moved after the evaluation
            scored_on = None
    if models:
        client.log_inputs(run_id, models=[LoggedModelInput(model) for model in models])
    return scored_on


def log_page(tracked: TrackedRun, files: Mapping[str, str], figures: Mapping[str, "Figure"]) -> None:
    """Log the table of all tasks, as texts and as figures."""
    client = client_of(tracked.uri)
    for name, text in files.items():
        client.log_text(tracked.run_id, text, names.path(f"scores/{name}"))
    for name, figure in figures.items():
        client.log_figure(tracked.run_id, figure, names.path(f"figures/{name}.png"))


def log_comparison(
    tracked: TrackedRun, scores: Mapping[str, float], files: Sequence[Path], figures: Mapping[str, "Figure"]
) -> None:
    """Log a comparison of runs: its differences as metrics, its files, and its figures."""
    client, now_ms = client_of(tracked.uri), int(time.time() * 1000)
    names.log_metrics(client, tracked.run_id, [(key, value, now_ms, 0) for key, value in scores.items()])
    for file in files:
        client.log_artifact(tracked.run_id, str(file))
    for name, figure in figures.items():
        client.log_figure(tracked.run_id, figure, names.path(f"figures/{name}.png"))


@contextmanager
def _child(client: Any, parent: Any, name: str, more: Mapping[str, str]) -> Iterator[str]:
    """The ID of a new nested run, which ends as FINISHED if the block succeeds, otherwise as FAILED.

    `more` are its own tags; empty values are left out.
    """
    inherited = (FOLDER, "recipe", "recipe_hash", "corpus_hash")
    tags = {key: value for key, value in parent.data.tags.items() if key in inherited}
    tags |= {key: names.value(value) for key, value in more.items() if value}
    tags |= {"mlflow.parentRunId": parent.info.run_id, "mlflow.source.name": "sesame"}
    tags |= {OWNER: json.dumps(asdict(Owner.me()))}
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

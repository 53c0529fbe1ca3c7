"""Scores in MLflow: nested runs, datasets, prompts, figures, the page and averages. Tests use SQLite and no Ray."""

import json
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestration import figures, launch, tracking
from orchestration.config import load_cluster
from orchestration.evaluation import evaluate
from orchestration.evaluation.score_plan import TaskPlan
from orchestration.jobs import runs, stages
from orchestration.jobs.task_splits import SplitFile
from orchestration.launch import EvalTrial
from orchestration.progress import ignore_progress
from orchestration.tracking import scores, store_timeout
from orchestration.tracking.runs import client_of
from preprocessing.errors import SesameError
from training.evaluation import EvalResult
from training.evaluation.tasks import Classification, TaskItem
from training.finetuning import Tuning

GLUE = {"cola": "matthews", "sst2": "accuracy", "mrpc": "accuracy", "stsb": "spearman"}
GLUE |= {"qqp": "accuracy", "mnli": "accuracy", "qnli": "accuracy", "rte": "accuracy"}
HANS = Classification(
    text="a",
    label="b",
    labels=("contradiction", "entailment", "neutral"),
    merge_labels={"neutral": "non-entailment", "contradiction": "non-entailment"},
)


@pytest.fixture(autouse=True)
def instant_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials return results at once: an accuracy that depends on learning rate and seed, and predictions of HANS."""

    def grid(cells: Sequence[EvalTrial], room: Any, on_done: Callable[[int, Any], str], *more: Any) -> dict[int, Any]:
        for number, cell in enumerate(cells):
            tuning = cell.tuning
            score = 0.5 + (tuning.seed / 8 + tuning.learning_rate if tuning else 0.25)
            by_split = {"dev": {metric_of(cell.name): score}, "test": {metric_of(cell.name): score / 2}}
            actual = {"test": ["entailment", "non-entailment", "non-entailment"]}
            on_done(number, EvalResult(by_split, actual, [2.0, 1.0] if tuning else (), example="Q: why?\nA: so"))
        return {}

    monkeypatch.setattr(launch, "run_trials", grid)
    monkeypatch.setattr(launch, "ray_session", lambda *_, **__: nullcontext())


def metric_of(name: str) -> str:
    return GLUE.get(name.split(",")[0], "accuracy")


def make_plan(folder: Path, task: str, kind: Any = HANS, rates: Sequence[float] = (), **more: Any) -> TaskPlan:
    tunings = [
        Tuning(batch_size=8, epochs=1.0, learning_rate=rate, seed=seed) for rate in rates for seed in (0, 1)
    ] or [None]
    cells = [
        EvalTrial(
            f"{task}, pretrained, {tuning and (tuning.learning_rate, tuning.seed)}",
            folder,
            "weights",
            task,
            "pretrained",
            tuning,
        )
        for tuning in tunings
    ]
    stage = stages.JobStage("scores", folder / "scores", task, {"task": task, "rates": list(rates)})
    items = {"test": [TaskItem(str(number), ("text",), number) for number in range(3)]}
    values = {"chosen_on": "dev" if rates else "", "items": items, "data_digest": "d" * 64, "paper": {"x.y": 80.5}}
    return TaskPlan(task, stage, cells, metric_of(task), "test", kind=kind, **values | more)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output directory with the MLflow store; creating a store takes seconds."""
    return tmp_path_factory.mktemp("out")


@pytest.fixture
def run(out: Path, tmp_path: Path) -> tracking.TrackedRun:
    """The finished MLflow run of a pretraining."""
    metadata = tracking.Metadata("mini", {}, {})
    with tracking.run(tracking.tracking_store(out), tmp_path / "mini-12345678", None, metadata) as tracked:
        return tracked


def test_task_is_logged_with_parameters_metrics_and_files(
    run: tracking.TrackedRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "mini-12345678"
    files = {"test": SplitFile("/data/hans.tsv", {"premise": str})}
    plan = make_plan(folder, "hans", rates=(0.1, 0.2), files=files)
    (score,) = evaluate.evaluate(folder, [plan], load_cluster("local"), ignore_progress, command="sesame eval mini")
    assert score.starts["pretrained"].how["learning_rate"] == 0.2
    assert "MLflow" not in caplog.text
    client = client_of(run.uri)

    def child_runs(run_id: str) -> list[Any]:
        experiment = client.get_run(run_id).info.experiment_id
        found = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{run_id}'")
        return sorted(found, key=lambda one: str(one.info.run_name))

    def text(run_id: str, name: str) -> str:
        return Path(client.download_artifacts(run_id, name, str(tmp_path))).read_text(encoding="utf-8")

    (task,) = child_runs(run.run_id)
    assert (task.data.params["chosen.pretrained.learning_rate"], task.data.params["paper.x.y"]) == ("0.2", "80.5")
    assert task.data.params["chosen.pretrained.epochs"] == "1.0"
    assert not {"labels", "chosen.pretrained.max_steps"} & task.data.params.keys()  # not requested, not used
    assert [point.value for point in client.get_metric_history(task.info.run_id, "pretrained_accuracy")] == [
        0.35,
        0.4125,
    ]
    assert task.data.metrics["pretrained_dev_accuracy"] == 0.825
    # the UI shows the last seed of a series, so the median is there, too
    assert task.data.metrics["eval/hans/pretrained_accuracy"] == pytest.approx(0.38125)
    (dataset,) = (each.dataset for each in task.inputs.dataset_inputs)
    assert (dataset.name, dataset.digest, dataset.source) == (
        "hans, test",
        "d" * 36,
        '{"uri": "file:///data/hans.tsv"}',
    )
    assert task.data.tags["command"] == "sesame eval mini"
    assert "* test: 3 questions of `/data/hans.tsv`" in task.data.tags["mlflow.note.content"]
    artifacts = {file.path for file in client.list_artifacts(task.info.run_id)}
    assert artifacts == {"figures", "table.md", "example.txt", "question_table.json"}
    table = json.loads(text(task.info.run_id, "question_table.json"))
    assert "expected and predicted answers of seed 0, one of 2" in task.data.tags["mlflow.note.content"]
    assert table["columns"] == ["question", "expected", "predicted", "correct", "split", "place"]
    assert len(table["data"]) == 3
    assert text(task.info.run_id, "example.txt") == "Q: why?\nA: so"
    drawn = {file.path for file in client.list_artifacts(task.info.run_id, "figures")}
    assert drawn == {f"figures/{name}.png" for name in ("scores", "rates", "confusion")}
    cells = child_runs(task.info.run_id)
    assert [one.data.params["seed"] for one in cells] == ["0", "1", "0", "1"]
    assert [one.data.metrics["dev_accuracy"] for one in cells] == [0.6, 0.725, 0.7, 0.825]
    losses = client.get_metric_history(cells[0].info.run_id, "loss")
    assert [(point.step, point.value) for point in losses] == [(1, 2.0), (2, 1.0)]
    whole = client.get_run(run.run_id)
    assert whole.data.metrics["eval/hans/pretrained_accuracy"] == pytest.approx(0.38125)
    assert {file.path for file in client.list_artifacts(run.run_id, "figures")} == {"figures/scores.png"}
    for name in ("table.md", "table.csv"):
        assert text(run.run_id, f"scores/{name}") == (folder / "scores" / name).read_text()


def test_glue_average_is_logged_once_all_tasks_have_scores(
    run: tracking.TrackedRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, client = tmp_path / "mini-12345678", client_of(run.uri)
    plans = [make_plan(folder, task, kind=None) for task in GLUE]
    for some in (plans[:5], plans[5:]):
        assert "eval/glue/average_dev" not in client.get_run(run.run_id).data.metrics
        evaluate.evaluate(folder, some, load_cluster("local"), ignore_progress)
    assert client.get_run(run.run_id).data.metrics["eval/glue/average_dev"] == 0.375
    assert "GLUE, average as dev: 37.5" in (folder / "scores/table.md").read_text()
    assert "MLflow" not in caplog.text
    evaluate.evaluate(
        folder, [make_plan(folder, "rte", rates=(0.1,), chosen_on="")], load_cluster("local"), ignore_progress
    )
    # the average is ambiguous because RTE has two scores
    assert "GLUE, average" not in (folder / "scores/table.md").read_text()


def test_transformers_model_gets_its_own_mlflow_run(
    out: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "evals" / "bert-12345678"
    for _ in range(2):
        evaluate.evaluate(folder, [make_plan(folder, "hans")], load_cluster("local"), ignore_progress, out)
    tracked = tracking.existing_run(folder)
    assert tracked is not None
    whole = client_of(tracked.uri).get_run(tracked.run_id)
    assert (whole.info.status, whole.data.tags["net"]) == ("FINISHED", "a directory of transformers")
    assert whole.data.metrics["eval/hans/pretrained_accuracy"] == 0.375
    assert "MLflow" not in caplog.text


def test_mlflow_run_of_a_directory_follows_its_last_evaluation(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed evaluation of a directory once left a FINISHED run."""
    folder = tmp_path / "evals" / "bert-12345678"
    plan, statuses = make_plan(folder, "hans"), list[str]()

    def status() -> str:
        tracked = tracking.existing_run(folder)
        assert tracked is not None
        return str(client_of(tracked.uri).get_run(tracked.run_id).info.status)

    def fail(cells: Sequence[EvalTrial], *more: object) -> dict[int, SesameError]:
        statuses.append(status())
        return dict.fromkeys(range(len(cells)), SesameError("no memory"))

    with monkeypatch.context() as patched:
        patched.setattr(launch, "run_trials", fail)
        with pytest.raises(SesameError, match="no memory"):
            evaluate.evaluate(folder, [plan], load_cluster("local"), ignore_progress, out)
    statuses.append(status())
    evaluate.evaluate(folder, [plan], load_cluster("local"), ignore_progress, out)
    assert [*statuses, status()] == ["RUNNING", "FAILED", "FINISHED"]


def test_unavailable_store_gives_a_warning_and_keeps_scores(
    run: tracking.TrackedRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "mini-12345678"
    (folder / "mlflow.json").write_text(json.dumps({"uri": run.uri, "run_id": "f" * 32}))
    with caplog.at_level(logging.WARNING):
        evaluate.evaluate(folder, [make_plan(folder, "hans")], load_cluster("local"), ignore_progress)
    assert "MLflow does not accept the scores of hans" in caplog.text
    assert "MLflow does not accept the table of scores" in caplog.text
    assert "| hans |" in (folder / "scores/table.md").read_text()


def test_next_command_logs_the_missing_scores(
    run: tracking.TrackedRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "mini-12345678"
    asked = load_cluster("local"), ignore_progress
    kept = (folder / "mlflow.json").read_bytes()
    (folder / "mlflow.json").write_text(json.dumps({"uri": run.uri, "run_id": "f" * 32}))
    evaluate.evaluate(folder, [make_plan(folder, "hans")], *asked)
    assert len(tracking.read_unlogged_metrics(folder)) == 2
    (folder / "mlflow.json").write_bytes(kept)
    caplog.clear()
    assert make_plan(folder, "hans").stage.state == "done"
    for _ in range(2):  # the second command logs nothing new
        evaluate.evaluate(folder, [make_plan(folder, "hans")], *asked)
    # urllib3 may log a call to an unavailable store that an earlier test has given up
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("orchestration")]
    assert (ours, tracking.read_unlogged_metrics(folder), tracking.pending_updates(folder)) == ([], set(), {})
    client = client_of(run.uri)
    experiment = client.get_run(run.run_id).info.experiment_id
    assert len(client.search_runs([experiment], f"tags.mlflow.parentRunId = '{run.run_id}'")) == 1
    assert len(client.list_artifacts(run.run_id, "scores")) == 3


def test_unresponsive_store_does_not_block_evaluation(
    run: tracking.TrackedRun, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("ANSWER_S", "SLOW_S"):
        monkeypatch.setattr(store_timeout, limit, 0.5)
    folder = tmp_path / "mini-12345678"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        (folder / "mlflow.json").write_text(json.dumps({"uri": uri, "run_id": run.run_id}))
        evaluate.evaluate(folder, [make_plan(folder, "hans")], load_cluster("local"), ignore_progress)
    assert caplog.text.count("no answer within") == 2
    assert len(tracking.read_unlogged_metrics(folder)) == 2


def test_more_parameters_than_one_mlflow_call_accepts_are_all_logged(run: tracking.TrackedRun) -> None:
    """A task with an initial task and a baseline has 106 parameters."""
    params = {"chosen": {str(number): number for number in range(120)}, "long": "x" * 7_000}
    tracking.log_task(run, tracking.TaskRecord("rte", params, {}, {}))
    client = client_of(run.uri)
    experiment = client.get_run(run.run_id).info.experiment_id
    (task,) = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{run.run_id}'")
    assert (len(task.data.params), task.data.params["chosen.119"]) == (121, "119")


def test_git_is_asked_once_for_a_task_with_many_trials(
    run: tracking.TrackedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each trial once started two processes of git."""
    asked = list[int]()
    monkeypatch.setattr(scores, "git_tags", lambda: asked.append(1) or {"git_dirty": "False"})
    cells = [tracking.TrialRecord(f"seed {seed}", {}, {}) for seed in range(3)]
    tracking.log_task(run, tracking.TaskRecord("rte", {}, {}, {}, cells=cells))
    assert len(asked) == 1
    client = client_of(run.uri)
    experiment = client.get_run(run.run_id).info.experiment_id
    (task,) = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{run.run_id}'")
    trials = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{task.info.run_id}'")
    assert [one.data.tags["git_dirty"] for one in (task, *trials)] == ["False"] * 4


def test_earlier_scored_task_still_gets_a_curve_over_steps(
    run: tracking.TrackedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks have different grids, so scores of the finished run and of checkpoints differ by hash."""
    folder, drawn = tmp_path / "mini-12345678", list[dict[str, Any]]()
    (folder / runs.RESULT).write_text(json.dumps({"step": 20}))
    monkeypatch.setattr(
        figures, "plot_curves", lambda lines, *_, **__: drawn.append(dict(lines)) or figures._new_axes("y")[0]
    )
    asked = load_cluster("local"), ignore_progress
    evaluate.evaluate(folder, [make_plan(folder, "hans", rates=(0.1,), chosen_on="")], *asked)
    whole = make_plan(folder, "hans")
    at_step = stages.JobStage("scores", folder / "scores", "hans", {**whole.stage.causes, "step": 10})
    evaluate.evaluate(folder, [replace(whole, step=10, stage=at_step), replace(whole, step=20)], *asked)
    assert [(list(line), [step for step, _ in line]) for line in drawn[-1].values()] == [
        ([(10, 37.5), (20, 37.5)], [10, 20])
    ]
    client = client_of(run.uri)
    # all scores of the finished run are logged at its last step; those of each grid are a curve with its own name
    for name, steps in (("hans", [20]), (whole.stage.folder.name, [10, 20])):
        points = client.get_metric_history(run.run_id, f"eval/{name}/pretrained_accuracy")
        assert sorted(point.step for point in points) == steps

"""Names in MLflow: one entity of each kind is written to a real store and read back, and different names stay
different."""

import ast
import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repo import verify_artifact_path
from mlflow.utils import validation

from orchestration import figures, tracking
from orchestration.config import list_names as all_names
from orchestration.config import load, load_task
from orchestration.evaluation import score_records
from orchestration.evaluation.paper_figures import paper_figures
from orchestration.tracking import metadata, names
from orchestration.tracking import runs as track
from preprocessing.errors import BadInput
from training.evaluation.tasks import SelectedTrials, TaskScore

INVALID = (
    "paper.glue.mrpc (test)",
    "accuracy_of_Biology (AP), 9th",
    "pretrained_f1 of C#",
    "100 %",
    "a=b",
    "a\\b",
    "tab\tand\nline",
    "end of line\n",
    "naïve “quote”",
    "",
    " ",
    ".",
    "..",
    "../up",
    "...",
    "..hidden",
    "/absolute",
    "a//b",
    "a/./b",
    "a/",
    "a/../b",
    "x" * 251,
    "x" * 251 + "y",
    "語" * 300,
    "\udcff surrogate",
    "zero\x00byte",
    " padded ",
    names.key("paper.glue.mrpc (test)"),  # a name that looks like a mapped name
)
VALID = ("train/loss", "eval/rte/pretrained_accuracy", "語/精度", "Accuracy", "accuracy", "a b", "a:b", "x" * 250)


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> track.TrackedRun:
    out = tmp_path_factory.mktemp("out")
    with tracking.run(tracking.tracking_store(out), out / "mini-12345678", None, tracking.Metadata("mini")) as run:
        return run


def stored(run_id: str, uri: str) -> Any:
    return track.client_of(uri).get_run(run_id)


def test_the_first_digits_of_a_task_run_or_a_trial_find_the_directory_of_the_run(tracked: track.TrackedRun) -> None:
    cells = [tracking.TrialRecord("seed 0", {}, {"f1": 0.5})]
    tracking.log_task(tracked, tracking.TaskRecord("prefix", {}, {"f1": [0.5]}, {"f1": 0.5}, cells=cells))
    client = track.client_of(tracked.uri)
    experiment = stored(tracked.run_id, tracked.uri).info.experiment_id
    place = tracking.TrackingStore(tracked.uri, "")
    for one in client.search_runs([experiment]):
        for name in (one.info.run_id, one.info.run_id[:8]):
            (folder,) = tracking.find_run_directories(place, name)
            assert folder.name == "mini-12345678"
    assert tracking.find_run_directories(place, "0" * 32) == []


def child(tracked: track.TrackedRun) -> Any:
    """Return the newest child run."""
    client = track.client_of(tracked.uri)
    experiment = stored(tracked.run_id, tracked.uri).info.experiment_id
    found = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{tracked.run_id}'")
    return max(found, key=lambda one: one.info.start_time)


def by_true_name(values: dict[str, Any], tags: dict[str, str]) -> dict[str, Any]:
    return {tags.get(names.TRUE_NAME + name, name): value for name, value in values.items()}


def printable(name: str) -> str:
    return names.value(name)


def test_valid_names_are_kept_and_invalid_ones_are_mapped_to_valid_names() -> None:
    for name in VALID:
        assert names.key(name) == name
    for name in (*INVALID, *VALID):
        for check in (validation._validate_param_name, validation._validate_metric_name, validation._validate_tag_name):
            check(names.key(name))
        verify_artifact_path(names.path(name))
        assert len(names.TRUE_NAME + names.key(name)) <= validation.MAX_ENTITY_KEY_LENGTH or names.key(name) == name
        assert 0 < len(names.title(name)) <= 250
        assert all(len(part.encode()) <= 255 for part in names.path(name).split("/"))


@pytest.mark.parametrize("to", [names.key, names.path, names.title])
def test_different_names_stay_different_regardless_of_case(to: Callable[[str], str]) -> None:
    every = [*INVALID, *VALID, *map(names.key, INVALID), *map(names.path, INVALID), *map(names.title, INVALID)]
    every = list(dict.fromkeys(every))
    assert len(set(map(to, every))) == len(every)
    changed = [to(name).lower() for name in every if to(name) != name]
    assert len(set(changed)) == len(changed)


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_two_texts_have_different_valid_names(one: str, other: str) -> None:
    for to in (names.key, names.path, names.title):
        assert (to(one) == to(other)) == (one == other)
    validation._validate_metric_name(names.key(one))
    verify_artifact_path(names.path(one))


@given(st.text(alphabet="ab-x0123456789abcdef/. (", max_size=40))
def test_name_never_collides_with_a_mapped_name(name: str) -> None:
    assert names.key(names.key(name)) != names.key(name) or names.key(name) == name


def test_artifact_keeps_its_file_extension() -> None:
    assert names.path("figures/a#b.png").endswith(".png")
    assert names.path("figures/scores_by_step_word perplexity.png") == "figures/scores_by_step_word perplexity.png"


def test_one_entity_of_each_kind_is_read_back_from_a_real_store(tracked: track.TrackedRun, tmp_path: Path) -> None:
    """Metrics, parameters, tags, texts, figures, a dataset and runs whose names MLflow refuses."""
    record = tracking.TaskRecord(
        "Biology (AP), 9th / #1",
        params={"paper": dict.fromkeys(INVALID, 1.5)},
        series={name: [number, number + 0.5] for number, name in enumerate(INVALID)},
        headline={name: float(number) for number, name in enumerate((*INVALID, *VALID))},
        figures={"scores of C#": figures.plot_curves({"a": [(1, 2.0)]}, "y")},
        files={"../table.md": "text"},
        tables={"../table.json": (("a",), [[1]])},
        datasets=[
            tracking.TaskDataset(
                "Biology (AP), 9th / #1, test", "d" * 64, "s3://a/b c.csv", {"x#": str}, 1, "evaluation"
            )
        ],
        cells=[tracking.TrialRecord("cell: (a), b/c", {"peak (max)": 1e-3}, {"dev f1 (%)": 0.5}, [2.0])],
    )
    tracking.log_task(tracked, record)
    whole, task = stored(tracked.run_id, tracked.uri).data, child(tracked)
    cell = child(track.TrackedRun(tracked.uri, task.info.run_id))
    assert task.info.run_name.startswith("eval/Biology (AP), 9th / #1 of mini")
    assert {one.info.status for one in (task, cell)} == {"FINISHED"}
    headline = by_true_name(whole.metrics, whole.tags)
    wanted = {printable(f"eval/{record.name}/{name}"): number for number, name in enumerate((*INVALID, *VALID))}
    assert {name: headline[name] for name in wanted} == wanted
    series = by_true_name(task.data.metrics, task.data.tags)
    assert series == wanted | {printable(name): number + 0.5 for number, name in enumerate(INVALID)}
    params = by_true_name(task.data.params, task.data.tags)
    assert params == {printable(f"paper.{name}"): "1.5" for name in INVALID}
    assert by_true_name(cell.data.params, cell.data.tags) == {"peak (max)": "0.001"}
    assert by_true_name(cell.data.metrics, cell.data.tags) == {"dev f1 (%)": 0.5, "loss": 2.0}
    assert task.inputs.dataset_inputs[0].dataset.name == "Biology (AP), 9th / #1, test"
    client = track.client_of(tracked.uri)
    files = [one.path for one in client.list_artifacts(task.info.run_id, "_")]  # ../table.json and ../table.md
    table, page = sorted(files, key=lambda path: Path(path).suffix)
    assert json.loads(task.data.tags["mlflow.loggedArtifacts"]) == [{"path": table, "type": "table"}]
    assert Path(client.download_artifacts(task.info.run_id, page, str(tmp_path))).read_text(encoding="utf-8") == "text"
    assert len(client.list_artifacts(task.info.run_id, "figures")) == 1


def test_invalid_values_are_escaped_and_long_ones_truncated(tracked: track.TrackedRun) -> None:
    """A server refuses a batch of long values if the writing system needs many bytes per character."""
    client, run_id = track.client_of(tracked.uri), tracked.run_id
    sizes = list[int]()

    def log_batch(run: str, **entities: Any) -> None:
        sizes.append(len(json.dumps([[one.key, one.value] for each in entities.values() for one in each])))
        client.log_batch(run, **entities)

    watched: Any = SimpleNamespace(log_batch=log_batch)
    long = {f"long.{number}": "語" * 6_000 for number in range(40)}
    names.log_params(watched, run_id, long.items())
    names.log_tags(watched, run_id, [("nul", "a\x00b"), ("surrogate", "\udcff"), ("long tag", "x" * 9_000)])
    names.log_metrics(client, run_id, [("inf", math.inf, 1, 0), ("-inf", -math.inf, 1, 0), ("nan", math.nan, 1, 0)])
    found = stored(run_id, tracked.uri).data
    assert all(math.isnan(found.metrics[name]) for name in ("inf", "-inf", "nan"))
    assert (found.tags["nul"], found.tags["surrogate"]) == ("a\\x00b", "\\udcff")
    assert found.tags["long tag"].endswith("x ... (9,000 characters)")
    assert found.params["long.39"].endswith("語 ... (6,000 characters)")
    assert max(sizes) < validation.MAX_BATCH_LOG_REQUEST_SIZE


def test_parameters_with_colliding_names_are_all_kept() -> None:
    assert len(metadata.flatten_params({"a": {"b.c": 1, "b": {"c": 2}}, "a.b": {"c": 3}, "a.b.c": 4})) == 4


def test_reported_scores_of_all_recipes_and_tasks_have_valid_names(
    tracked: track.TrackedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reported scores of 278 pairs of recipe and task, as the run of a task logs them."""
    monkeypatch.setattr(score_records, "draw_task", lambda *_: {})
    for name in ("score_page", "_question_table", "_note", "_datasets"):
        monkeypatch.setattr(score_records, name, lambda *_: "")
    tasks = [load_task(name) for name in all_names("tasks") if name != "unavailable"]
    plan: Any = SimpleNamespace(kind="", stage=SimpleNamespace(folder=Path("scores")))
    every, pairs = dict[str, str](), 0
    for recipe in all_names("recipes"):
        expected = load(recipe).reported_results
        for task in tasks:
            if not (paper := paper_figures(task, expected)):
                continue
            starts = {"pretrained": SelectedTrials({}, {"test": {task.metric: (0.5,)}})}
            score = TaskScore(task.name, task.metric, "test", "", starts, paper=paper)
            record = score_records.make_record(plan, [], score, score.task, 0, "")
            flat = metadata.flatten_params(record.params)
            assert [names.key(name) for name in flat] == list(flat)  # readable: no name is mapped
            assert sum(name.startswith("paper.") for name in flat) == len(paper)
            for name in (*record.series, *(f"eval/{record.name}/{one}" for one in record.headline)):
                validation._validate_metric_name(name)
            every |= {f"{recipe}/{task.name}/{name}": value for name, value in flat.items()}
            pairs += 1
    assert pairs > 200
    client = track.client_of(tracked.uri)
    names.log_params(client, tracked.run_id, every.items())
    assert stored(tracked.run_id, tracked.uri).data.params.items() >= every.items()


@pytest.mark.parametrize("name", ["", " ", "a/b", "a:b", "..", "x" * 300, "a\nb"])
def test_model_name_is_kept_or_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="invalid model name"):
        tracking.register(tmp_path, tmp_path, name)
    assert names.model("bert (mine), 2nd") == "bert (mine), 2nd"


@pytest.mark.parametrize("name", [" ", "x" * 501, "a\nb"])
def test_experiment_name_is_kept_or_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", name)
    with pytest.raises(BadInput, match="invalid experiment name"):
        track.experiment(None, tracking.tracking_store(tmp_path))


def test_failed_logging_attempt_is_removed_after_a_successful_one(
    tracked: track.TrackedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [tracking.TrialRecord(name, {}, {"f1": 0.5}) for name in ("seed 0", "seed 1")]
    record = tracking.TaskRecord("broken", {}, {"f1": [0.5]}, {"f1": 0.5}, files={"table.md": "text"}, cells=cells)
    client = track.client_of(tracked.uri)
    experiment = stored(tracked.run_id, tracked.uri).info.experiment_id
    before = {one.info.run_id for one in client.search_runs([experiment])}  # of other tests

    def disk_full(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(MlflowClient, "log_text", disk_full)
        with pytest.raises(OSError, match="full"):
            tracking.log_task(tracked, record)
    assert child(tracked).info.status == "FAILED"
    assert child(tracked).data.metrics == {"f1": 0.5, "eval/broken/f1": 0.5}  # scores are logged first
    whole = MlflowClient.set_terminated

    def disk_full_in_a_trial(self: Any, run_id: str, *more: Any) -> None:
        whole(self, run_id, *more)
        if self.get_run(run_id).info.run_name == "seed 0":
            disk_full()

    with monkeypatch.context() as broken:
        broken.setattr(MlflowClient, "set_terminated", disk_full_in_a_trial)
        with pytest.raises(OSError, match="full"):
            tracking.log_task(tracked, record)
    for _ in range(2):
        tracking.log_task(tracked, record)
    found = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{tracked.run_id}'")
    tasks = [one for one in found if "broken" in one.info.run_name]
    assert [one.info.status for one in tasks] == ["FINISHED", "FINISHED"]
    of = [
        one.data.tags.get("mlflow.parentRunId")
        for one in client.search_runs([experiment])
        if "seed" in one.info.run_name and one.info.run_id not in before
    ]
    assert sorted(of) == sorted([one.info.run_id for one in tasks] * 2)  # no trial run without its task run


def test_refused_request_has_no_advice_to_retry(caplog: pytest.LogCaptureFixture) -> None:
    remedy = "; the same command again logs them"
    for error in (MlflowException("no", error_code=1000), ConnectionError("away")):
        with caplog.at_level(logging.WARNING), track.log_and_suppress("the scores", remedy):
            raise error
    refused, away = (one.getMessage() for one in caplog.records)
    assert remedy not in refused
    assert remedy in away


def test_only_the_names_module_creates_named_entities() -> None:
    """Each call of MLflow's client with a name uses this module or a constant of Sesame."""
    folder, found = Path(names.__file__).parent, list[str]()
    for file in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or file.name == "names.py":
                continue
            what = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            source = ast.unparse(node)
            if what in ("Metric", "Param", "RunTag") and "point.key" not in source:  # made by the store itself
                found.append(f"{file.name}: {source}")
            if what in ("log_text", "log_figure") and "names.path(" not in source and len(node.args) > 2:
                found.append(f"{file.name}: {source}")
    assert found == []

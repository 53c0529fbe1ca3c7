"""MLflow on SQLite: the lifecycle of a run, its metrics and its metadata."""

import errno
import json
import logging
import os
import platform
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest
from mlflow.exceptions import MlflowException

from orchestration import figures
from orchestration.jobs import catch_up
from orchestration.launch import worker
from orchestration.progress import ignore_progress
from orchestration.tracking import (
    MetricLog,
    TaskDataset,
    TaskRecord,
    TrialRecord,
    log_task,
    metrics,
    server,
    store_timeout,
)
from orchestration.tracking import runs as track
from orchestration.tracking.metadata import log_dataset
from orchestration.tracking.store_timeout import add_pending, pending_updates, wait_while_available
from preprocessing import limits, lock
from preprocessing.errors import BadInput, Preempted, ResourceError
from preprocessing.lock import hold_lock
from preprocessing.manifest import Manifest
from preprocessing.processes import read_start_id
from tests.training.corpora import gpt, mini_corpus, mini_run
from training.engines.local import LocalEngine
from training.formats import build_model
from training.loop import Callbacks, pretrain

PARAMS = {"optimizer": {"learning_rate": 1e-3}, "phases": [{"steps": 7}]}
METADATA = track.Metadata("mini", PARAMS, {"recipe_hash": "abc"}, "* a small net", {"recipe.yaml": "name: mini\n"})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> track.TrackingStore:
    return track.tracking_store(tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mini_corpus(tmp_path_factory.mktemp("text") / "corpus", num_train=3, num_validation=1)


@pytest.fixture(scope="module")
def experiment(place: track.TrackingStore, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The ID of the experiment that contains the runs."""
    with track.run(place, tmp_path_factory.mktemp("first"), corpus, METADATA) as tracked:
        return str(mlflow_run(tracked).info.experiment_id)


def mlflow_run(tracked: track.TrackedRun) -> Any:
    return track.client_of(tracked.uri).get_run(tracked.run_id)


def points(tracked: track.TrackedRun, key: str) -> list[tuple[int, float]]:
    found = track.client_of(tracked.uri).get_metric_history(tracked.run_id, key)
    return sorted((point.step, point.value) for point in found)


# Lifecycle of a run


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "FINISHED"),
        (ValueError("a bug"), "FAILED"),
        (Preempted("asked to stop"), "KILLED"),
        (KeyboardInterrupt(), "KILLED"),
        (SystemExit(1), "KILLED"),
    ],
)
def test_exception_decides_the_final_status(
    error: BaseException | None, status: str, place: track.TrackingStore, corpus: Path, tmp_path: Path
) -> None:
    with (
        pytest.raises(type(error)) if error else nullcontext(),
        track.run(place, tmp_path, corpus, METADATA) as tracked,
    ):
        assert mlflow_run(tracked).info.status == "RUNNING"
        if error:
            raise error
    assert mlflow_run(tracked).info.status == status
    assert mlflow_run(tracked).data.tags.get("sesame.exit_reason", "").startswith(type(error).__name__ if error else "")


def test_directory_keeps_its_run(place: track.TrackingStore, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(Preempted), track.run(place, tmp_path, corpus, METADATA) as first:
        raise Preempted("stopped")
    with track.run(place, tmp_path, corpus, METADATA) as second:
        assert second == first
    assert mlflow_run(second).info.status == "FINISHED"


def test_run_missing_from_the_store_is_created_again(place: track.TrackingStore, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / track.RUN_FILE).write_text(json.dumps({"uri": place.uri, "run_id": "0" * 32}))
    with track.run(place, tmp_path, corpus, METADATA) as tracked:
        assert mlflow_run(tracked).info.status == "RUNNING"


def owner(silent_s: float = 0.0, **changes: Any) -> track.Owner:
    """Return this process as owner, with changes; its last heartbeat was `silent_s` seconds ago."""
    return replace(track.Owner.me(), **changes, beat=time.time() - silent_s)


@pytest.mark.parametrize(
    ("of", "dead"),
    [
        pytest.param({"pid": 2**22 + 1}, True, id="no such process"),
        pytest.param({"began": "this boot:1"}, True, id="its process ID was reused"),
        pytest.param(
            {"began": "", "started": 0.0}, True, id="its process ID was reused, recorded by an earlier version"
        ),
        pytest.param({"started": 0.0}, False, id="this process, after a clock change"),
        pytest.param({}, False, id="this process"),
        pytest.param({"host": "elsewhere"}, False, id="another machine"),
        pytest.param({"host": "elsewhere", "silent_s": 2 * track.STALE_S}, True, id="another machine, long silent"),
    ],
)
def test_runs_of_dead_owners_are_closed(
    of: dict[str, Any], dead: bool, place: track.TrackingStore, experiment: str
) -> None:
    client = track.client_of(place.uri)
    run_id = client.create_run(experiment, tags={track.OWNER: json.dumps(asdict(owner(**of)))}).info.run_id
    assert (run_id in track.reap(place)) == dead
    assert client.get_run(run_id).info.status == ("FAILED" if dead else "RUNNING")
    client.set_terminated(run_id)


def test_runs_of_other_programs_are_unchanged(place: track.TrackingStore, experiment: str) -> None:
    client = track.client_of(place.uri)
    run_id = client.create_run(experiment).info.run_id
    assert run_id not in track.reap(place)
    client.set_terminated(run_id)


OTHERS: dict[str, dict[str, Any]] = {
    "a live process": {},
    "a zombie": {"zombie": True},
    "another host": {"host": "elsewhere"},
    "another host with a fast clock": {"host": "elsewhere", "beat": 4e9},
    "an earlier version": {"began": ""},
}


@contextmanager
def other_process(zombie: bool = False, **changes: Any) -> Iterator[track.Owner]:
    """Start another process and yield it as owner; a zombie is a killed process that was not waited for."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        started = psutil.Process(process.pid).create_time()
        owner = track.Owner(platform.node(), process.pid, started, time.time(), read_start_id(process.pid))
        if zombie:
            process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield replace(owner, **changes)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("kind", OTHERS)
def test_lock_holder_owns_the_run_regardless_of_its_tags(
    kind: str, place: track.TrackingStore, corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A killed driver that was not waited for once blocked its run: "process 18928 on vm is at work in it"."""
    with (
        hold_lock(tmp_path),
        other_process(**OTHERS[kind]) as before,
        track.run(place, tmp_path, corpus, METADATA) as tracked,
    ):
        track.tag(tracked, **{track.OWNER: json.dumps(asdict(before))})
        with track.run(place, tmp_path, corpus, METADATA) as again:
            assert again == tracked
            assert json.loads(mlflow_run(again).data.tags[track.OWNER])["pid"] == os.getpid()
    assert "is at work in it" not in caplog.text


@pytest.mark.parametrize(("kind", "warns"), [("a live process", True), ("a zombie", False)])
def test_live_owner_gives_a_warning_on_a_disk_without_locks(
    kind: str,
    warns: bool,
    place: track.TrackingStore,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with other_process(**OTHERS[kind]) as before, track.run(place, tmp_path, corpus, METADATA) as tracked:
        track.tag(tracked, **{track.OWNER: json.dumps(asdict(before))})
        with track.run(place, tmp_path, corpus, METADATA) as again:
            assert again == tracked
    assert ("seems to use it, and this disk has no locks" in caplog.text) == warns


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("is_locked", [False, True])
def test_run_is_closed_if_its_directory_is_not_locked(
    kind: str, is_locked: bool, place: track.TrackingStore, corpus: Path, tmp_path: Path
) -> None:
    """This also holds for an owner on another host, which cannot be checked, and for wrong clocks."""
    client = track.client_of(place.uri)
    with track.run(place, tmp_path / "run", corpus, METADATA) as tracked:
        pass
    client.update_run(tracked.run_id, status="RUNNING")
    with other_process(**OTHERS[kind]) as before, hold_lock(tmp_path / "run") if is_locked else nullcontext():
        track.tag(tracked, **{track.OWNER: json.dumps(asdict(before))})
        assert (tracked.run_id in track.reap(place)) != is_locked
    client.set_terminated(tracked.run_id)


@pytest.mark.parametrize("closed", ["folder", "record"])
def test_unreadable_runs_of_another_user_are_ignored(
    closed: str, place: track.TrackingStore, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store shared by several users, each of them once got "MLflow does not answer (Permission denied)"."""
    client = track.client_of(place.uri)
    with track.run(place, tmp_path / "theirs", corpus, METADATA) as theirs:
        pass
    client.update_run(theirs.run_id, status="RUNNING")
    stat, read = Path.stat, Path.read_bytes

    def is_closed(path: Path) -> bool:
        return path.is_relative_to(tmp_path / "theirs") and (closed == "folder" or path.name == track.RUN_FILE)

    def refuse(do: Any) -> Any:
        def doing(path: Path, **keys: Any) -> Any:
            if is_closed(path):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return do(path, **keys)

        return doing

    monkeypatch.setattr(Path, "stat", refuse(stat))
    monkeypatch.setattr(Path, "read_bytes", refuse(read))
    with track.run(place, tmp_path / "mine", corpus, METADATA) as mine:
        assert mlflow_run(mine).info.status == "RUNNING"
    client.set_terminated(theirs.run_id)


ODD_OWNERS = [
    "", "null", "[]", "{}", "[" * 4_000, '{"pid": 5}', '{"host": 1, "pid": "x", "started": 0, "beat": 0}',
    '{"host": "h", "pid": 1e999, "started": 0, "beat": 0}',
]  # fmt: skip


@pytest.mark.parametrize("tag", [*ODD_OWNERS, '{"host": "h", "pid": 5, "started": 0, "beat": 0, "later": 1}'])
def test_malformed_owner_tag_gives_no_traceback(
    tag: str, place: track.TrackingStore, corpus: Path, tmp_path: Path
) -> None:
    client = track.client_of(place.uri)
    with track.run(place, tmp_path / "run", corpus, METADATA) as tracked:
        pass
    track.tag(tracked, **{track.OWNER: tag, track.FOLDER: (tmp_path / "elsewhere").as_uri()})
    client.update_run(tracked.run_id, status="RUNNING")
    is_known = tag not in ODD_OWNERS
    assert (tracked.run_id in track.reap(place)) == is_known  # it has been silent for a long time
    client.set_terminated(tracked.run_id)


def test_evaluations_without_a_lock_are_checked_by_their_process(
    place: track.TrackingStore, corpus: Path, tmp_path: Path
) -> None:
    client = track.client_of(place.uri)
    with track.run(place, tmp_path / "run", corpus, METADATA) as tracked:
        pass
    for kind, is_closed in (("a live process", False), ("a zombie", True)):
        with other_process(**OTHERS[kind]) as before:
            tags = {track.OWNER: json.dumps(asdict(before)), track.FOLDER: (tmp_path / "run").as_uri()}
            child = client.create_run(mlflow_run(tracked).info.experiment_id, tags=tags).info.run_id
            assert (child in track.reap(place)) == is_closed
            client.set_terminated(child)


def test_unusable_store_gives_a_one_line_error(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database")
    with (
        pytest.raises(ResourceError, match=r"MLflow at sqlite:.* does not answer .*MLFLOW_TRACKING_URI"),
        track.run(track.TrackingStore(f"sqlite:///{tmp_path / 'mlflow.db'}"), tmp_path, corpus, METADATA),
    ):
        pass


def test_store_failure_at_the_end_does_not_hide_the_original_error(
    place: track.TrackingStore, corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def lose_the_run() -> None:
        with track.run(place, tmp_path, corpus, METADATA) as tracked:
            track.client_of(place.uri).delete_run(tracked.run_id)
            raise Preempted("it was gone by then")

    with pytest.raises(Preempted, match="by then"):
        lose_the_run()
    assert "MLflow does not accept the final status KILLED of the run" in caplog.text


@pytest.mark.slow
def test_run_of_a_killed_process_is_closed_at_the_next_start(corpus: Path, tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from orchestration.tracking import runs as track\n"
        "out, corpus = map(Path, sys.argv[1:])\n"
        "with track.run(track.tracking_store(out), out / 'run', corpus, track.Metadata('killed')):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    died = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(corpus)], cwd=Path(track.__file__).parents[2]
    )
    assert died.returncode == -9
    tracked = track.existing_run(tmp_path / "run")
    assert tracked
    assert mlflow_run(tracked).info.status == "RUNNING"
    assert track.reap(track.tracking_store(tmp_path)) == [tracked.run_id]
    assert mlflow_run(tracked).info.status == "FAILED"


# Metadata


def test_run_has_parameters_tags_and_its_corpus(place: track.TrackingStore, corpus: Path, tmp_path: Path) -> None:
    with track.run(place, tmp_path, corpus, METADATA) as tracked:
        pass
    logged = mlflow_run(tracked)
    assert logged.data.params == {"optimizer.learning_rate": "0.001", "phases.0.steps": "7"}
    assert logged.data.tags["recipe_hash"] == "abc"
    assert logged.data.tags["host"] == platform.node()
    (lineage,) = logged.inputs.dataset_inputs
    digest = Manifest.load(corpus).digest
    assert (lineage.dataset.name, lineage.dataset.digest) == ("mini_world", digest[:36])
    profile = json.loads(lineage.dataset.profile)
    assert (profile["digest"], profile["train"].partition(", ")[0]) == (digest, "3 documents")
    assert json.loads(lineage.dataset.source)["uri"] == corpus.as_uri()
    assert [(each.key, each.value) for each in lineage.tags] == [("mlflow.data.context", "pretraining")]
    recipe = Path(track.client_of(place.uri).download_artifacts(tracked.run_id, "recipe.yaml"))
    assert recipe.read_text(encoding="utf-8") == "name: mini\n"


def test_run_has_directory_description_and_hardware_tags(
    place: track.TrackingStore, corpus: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mini-10a7c2f4"
    with track.run(place, folder, corpus, METADATA) as tracked:
        pass
    logged = mlflow_run(tracked)
    assert logged.info.run_name == "mini-10a7"
    tags = logged.data.tags
    assert tags["mlflow.note.content"] == "* a small net"
    assert tags["sesame.run_dir"] == folder.as_uri()
    assert tags["library.torch"] == version("torch")
    assert tags["library.python"] == platform.python_version()
    assert float(tags["hardware.cores"]) == limits.cores().number
    assert float(tags["hardware.memory_gib"]) == pytest.approx(limits.memory().limit / 2**30, abs=0.1)
    assert tags["hardware.processor"]


def test_worker_logs_its_hardware(place: track.TrackingStore, corpus: Path, tmp_path: Path) -> None:
    with track.run(place, tmp_path, corpus, METADATA) as tracked:
        MetricLog(tmp_path, tracked, system=False, tags={"host": "node-7", "hardware.gpus": "8 x H100"}).close()
    tags = mlflow_run(tracked).data.tags
    assert (tags["host"], tags["hardware.gpus"]) == ("node-7", "8 x H100")


def test_resumed_run_logs_the_tags_of_the_new_start(place: track.TrackingStore, corpus: Path, tmp_path: Path) -> None:
    for zero in (1, 3):
        with track.run(place, tmp_path, corpus, replace(METADATA, tags={"cluster.engine.zero_stage": zero})) as tracked:
            pass
    logged = mlflow_run(tracked)
    assert (logged.data.tags["cluster.engine.zero_stage"], logged.data.params["optimizer.learning_rate"]) == (
        "3",
        "0.001",
    )


def test_empty_tags_are_not_logged_and_replace_earlier_values(
    place: track.TrackingStore, corpus: Path, tmp_path: Path
) -> None:
    """A resumed run whose code is as at its first start has no changed code any more."""
    for code in ("", "masking.py", ""):
        with track.run(place, tmp_path, corpus, replace(METADATA, tags={"changed_code": code})) as tracked:
            pass
        tags = mlflow_run(tracked).data.tags
        assert tags.get("changed_code", "") == code
        assert all(tags.values())


def test_experiments_are_marked_as_model_training(place: track.TrackingStore, experiment: str) -> None:
    kind = track.client_of(place.uri).get_experiment(experiment).tags["mlflow.experimentKind"]
    assert kind == "custom_model_development"


def test_existing_experiment_keeps_its_kind(place: track.TrackingStore) -> None:
    client = track.client_of(place.uri)
    older = client.create_experiment("older")
    genai = client.create_experiment("agents", tags={"mlflow.experimentKind": "genai_development"})
    assert [track.experiment(client, place, name) for name in ("older", "agents")] == [older, genai]
    kinds = [client.get_experiment(number).tags["mlflow.experimentKind"] for number in (older, genai)]
    assert kinds == ["custom_model_development", "genai_development"]


def test_experiment_created_simultaneously_is_used(place: track.TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both commands find no experiment, and one creates it first. The other's error must not be "MLflow does not
    answer"."""
    client = track.client_of(place.uri)
    first = client.create_experiment("at once")
    look_up, answers = client.get_experiment_by_name, [None]
    monkeypatch.setattr(client, "get_experiment_by_name", lambda name: answers.pop() if answers else look_up(name))
    assert track.experiment(client, place, "at once") == first
    with pytest.raises(MlflowException, match="name"):
        track._new_experiment(client, place, "n" * 600)


def test_artifacts_are_written_below_the_output_directory(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with track.run(track.tracking_store(tmp_path / "out"), tmp_path / "run", corpus, METADATA) as tracked:
        track.log_figures(tracked, {"loss_curve": figures.plot_curves({"loss": [(1, 2.0), (2, 1.0)]}, "loss")})
    (picture,) = (tmp_path / "out").rglob("loss_curve.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_configured_tracking_server_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5001")
    assert track.tracking_store(tmp_path) == track.TrackingStore("http://127.0.0.1:5001")


def test_evaluation_is_a_child_run_with_trials_below(place: track.TrackingStore, corpus: Path, tmp_path: Path) -> None:
    with track.run(place, tmp_path, corpus, METADATA) as tracked:
        pass
    series = {"pretrained_accuracy": [0.5, 0.75], "random_accuracy": [0.25, 0.25]}
    record = TaskRecord(
        name="sst2",
        params={"labels": 200, "chosen": {"pretrained": {"peak": 3e-4}}},
        series=series,
        headline={"pretrained_accuracy": 0.625},
        figures={"scores": figures.plot_comparison("sst2", series, {"majority": 0.5})},
        files={"table.md": "a table"},
        labels=200,
        tables={"question_table.json": (("question", "correct"), [["a film", True]])},
        note="what it is",
        command="sesame eval sst2",
        datasets=[
            TaskDataset("sst2, train", "e" * 64, "/data/train.tsv", {"sentence": str}, 9, "training"),
            TaskDataset(
                "sst2, dev", "d" * 64, "/data/dev.tsv", {"sentence": str, "label": int}, 3, "evaluation", is_scored=True
            ),
        ],
        cells=[TrialRecord("sst2, seed 1", {"peak": 3e-4}, {"dev_accuracy": 0.75}, [0.7, 0.6, 0.5])],
    )
    log_task(tracked, record)
    client = track.client_of(place.uri)

    def child_run(run_id: str) -> Any:
        found = client.search_runs([mlflow_run(tracked).info.experiment_id], f"tags.mlflow.parentRunId = '{run_id}'")
        (child,) = found
        return child

    task = child_run(tracked.run_id)
    assert task.info.status == "FINISHED"
    assert task.info.run_name == f"eval/sst2 with 200 labels of {mlflow_run(tracked).info.run_name}"
    assert task.data.tags["sesame.run_dir"] == tmp_path.as_uri()
    assert task.data.params == {"labels": "200", "chosen.pretrained.peak": "0.0003"}
    assert points(track.TrackedRun(place.uri, task.info.run_id), "pretrained_accuracy") == [(0, 0.5), (1, 0.75)]
    assert {each.path for each in client.list_artifacts(task.info.run_id)} == {
        "figures",
        "table.md",
        "question_table.json",
    }
    inputs = client.get_run(task.info.run_id).inputs.dataset_inputs
    by_name = {each.dataset.name: (each.dataset, each.tags[0].value) for each in inputs}
    dataset, context = by_name["sst2, dev"]
    assert (dataset.digest, context, by_name["sst2, train"][1]) == ("d" * 36, "evaluation", "training")
    assert json.loads(dataset.source) == {"uri": "file:///data/dev.tsv"}
    assert json.loads(dataset.profile) == {"num_rows": 3, "digest": "d" * 64}
    assert [(each["name"], each["type"]) for each in json.loads(dataset.schema)["mlflow_colspec"]] == [
        ("sentence", "string"),
        ("label", "long"),
    ]
    assert (task.data.tags["command"], task.data.tags["mlflow.note.content"]) == ("sesame eval sst2", "what it is")
    assert json.loads(task.data.tags["mlflow.loggedArtifacts"]) == [{"path": "question_table.json", "type": "table"}]
    table = json.loads(Path(client.download_artifacts(task.info.run_id, "question_table.json")).read_text())
    assert table == {"columns": ["question", "correct"], "data": [["a film", True]]}
    cell = child_run(task.info.run_id)
    assert (cell.info.run_name, cell.data.metrics["dev_accuracy"]) == ("sst2, seed 1", 0.75)
    assert cell.data.tags["command"] == "sesame eval sst2"
    assert points(track.TrackedRun(place.uri, cell.info.run_id), "loss") == [(1, 0.7), (2, 0.6), (3, 0.5)]
    assert mlflow_run(tracked).data.metrics["eval/sst2/pretrained_accuracy"] == 0.625
    assert points(tracked, "eval/sst2/by_labels/pretrained_accuracy") == [(200, 0.625)]


# Metrics


@pytest.fixture
def tracked(place: track.TrackingStore, corpus: Path, tmp_path: Path) -> track.TrackedRun:
    with track.run(place, tmp_path, corpus, METADATA) as tracked:
        return tracked


def test_every_point_is_logged_in_order(tracked: track.TrackedRun, tmp_path: Path) -> None:
    log = MetricLog(tmp_path, tracked, system=False)
    for step in range(2500):
        log(step, {"train/loss": step / 4})
    log.close()
    wanted = [(step, step / 4) for step in range(2500)]
    assert points(tracked, "train/loss") == wanted
    assert metrics.history(tmp_path)["train/loss"] == wanted


def test_restarted_worker_records_every_step_once(tracked: track.TrackedRun, tmp_path: Path) -> None:
    killed = MetricLog(tmp_path, None)  # killed before its first flush: MLflow has none of it
    for step in range(1, 8):
        killed(step, {"train/loss": float(step)})
    restarted = MetricLog(tmp_path, tracked, system=False)  # from the checkpoint of step 4
    for step in range(5, 11):
        restarted(step, {"train/loss": float(step), "train/learning_rate": 0.5})
    restarted.close()
    assert points(tracked, "train/loss") == [(step, float(step)) for step in range(1, 11)]
    assert [step for step, _ in points(tracked, "train/learning_rate")] == [5, 6, 7, 8, 9, 10]
    third = MetricLog(tmp_path, tracked, system=False)
    third.close()
    assert points(tracked, "train/loss") == metrics.history(tmp_path)["train/loss"]


def test_a_short_training_leaves_its_metrics_to_the_driver(
    tracked: track.TrackedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as worker:
        worker.setattr(metrics, "load_mlflow", lambda uri: pytest.fail("the worker must not import MLflow"))
        log, file = MetricLog(tmp_path, tracked, tags={"host": "node-7"}), tmp_path / "samples" / "step-2.txt"
        for step in (1, 2):
            log(step, {"train/loss": float(step)})
        file.parent.mkdir()
        file.write_text("a sample")
        log.mirror(file, "samples")
        log.close(may_defer=True)
    assert points(tracked, "train/loss") == []
    assert track.pending_updates(tmp_path)["points"] == 2
    MetricLog(tmp_path, tracked, system=False).close()
    assert points(tracked, "train/loss") == [(1, 1.0), (2, 2.0)]
    client = track.client_of(tracked.uri)
    assert [found.path for found in client.list_artifacts(tracked.run_id, "samples")] == ["samples/step-2.txt"]
    assert client.get_run(tracked.run_id).data.tags["host"] == "node-7"
    assert not {"points", "files", "tags"} & track.pending_updates(tmp_path).keys()


def test_a_worker_that_has_sent_metrics_sends_the_rest_too(
    tracked: track.TrackedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "FLUSH_S", 0.01)
    log = MetricLog(tmp_path, tracked, system=False)
    log(1, {"train/loss": 1.0})
    while not points(tracked, "train/loss"):
        time.sleep(0.01)
    log(2, {"train/loss": 2.0})
    log.close(may_defer=True)
    assert points(tracked, "train/loss") == [(1, 1.0), (2, 2.0)]


def test_partial_last_line_is_replaced(tmp_path: Path) -> None:
    log = MetricLog(tmp_path, None)
    log(1, {"train/loss": 3.0})
    log.close()
    with (tmp_path / metrics.METRICS_FILE).open("a") as file:
        file.write('{"step": 2, "metr')
    again = MetricLog(tmp_path, None)
    again(2, {"train/loss": 2.0})
    again.close()
    assert metrics.history(tmp_path) == {"train/loss": [(1, 3.0), (2, 2.0)]}


TAMPERING: dict[str, Any] = {
    "emptied": lambda file: file.write_text(""),
    "cut in a line": lambda file: os.truncate(file, 10),
    "cut in the second line": lambda file: os.truncate(file, file.read_bytes().index(b"\n") + 10),
    "cut between lines": lambda file: os.truncate(file, file.read_bytes().index(b"\n") + 1),
    "deleted": lambda file: file.unlink(),
    "replaced": lambda file: (file.unlink(), file.write_text("")),
}


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("how", TAMPERING)
def test_points_removed_from_the_record_during_training_are_reported(
    how: str, is_last: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A truncation of metrics.jsonl during training once lost steps without a warning."""
    log, file = MetricLog(tmp_path, None), tmp_path / metrics.METRICS_FILE
    for step in (1, 2):
        log(step, {"train/loss": float(step)})
    TAMPERING[how](file)
    if not is_last:
        log(3, {"train/loss": 3.0})
    log.close()
    message = [record.getMessage() for record in caplog.records]
    assert message == [
        f"{file}: another program truncated or replaced it during training; restore it when training has ended",
        f"{file}: lacks points up to step 2, which another program removed; restore the file from a copy",
    ]
    kept = [(1, 1.0)] if how in ("cut in the second line", "cut between lines") else []
    assert metrics.history(tmp_path).get("train/loss", []) == kept + ([] if is_last else [(3, 3.0)])


def test_unchanged_record_gives_no_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for start in (0, 10):
        log = MetricLog(tmp_path, None)
        for step in range(start, start + 10):
            log(step, {"train/loss": float(step)})
        log.close()
    assert caplog.records == []


def test_damaged_line_is_named_with_a_remedy(tmp_path: Path) -> None:
    log = MetricLog(tmp_path, None)
    for step in (1, 2, 3):
        log(step, {"train/loss": float(step)})
    log.close()
    whole = (tmp_path / metrics.METRICS_FILE).read_bytes()
    for damaged in (whole.replace(b'"step": 2', b'"st\x80p": 2'), whole.replace(b'{"step": 2', b'["step": 2')):
        (tmp_path / metrics.METRICS_FILE).write_bytes(damaged)
        with pytest.raises(BadInput, match=r"metrics.jsonl: line 2 is damaged .*; restore the file, or delete"):
            metrics.history(tmp_path)
    (tmp_path / metrics.METRICS_FILE).write_bytes(whole)
    assert metrics.history(tmp_path)["train/loss"] == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_run_with_a_damaged_mlflow_file_gets_a_new_mlflow_run(
    place: track.TrackingStore, corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with track.run(place, tmp_path, corpus, METADATA) as first:
        pass
    digit = first.run_id[0]  # the changed ID once counted as a run that the store does not have
    text = (tmp_path / track.RUN_FILE).read_text()
    (tmp_path / track.RUN_FILE).write_text(
        text.replace(first.run_id, ("0" if digit != "0" else "1") + first.run_id[1:])
    )
    with track.run(place, tmp_path, corpus, METADATA) as second:
        assert mlflow_run(second).info.status == "RUNNING"
    assert second.run_id != first.run_id
    assert track.existing_run(tmp_path) == second
    assert f"{tmp_path / track.RUN_FILE}: damaged, so a new MLflow run replaces this one" in caplog.text


def test_infinity_is_logged_as_nan(tracked: track.TrackedRun, tmp_path: Path) -> None:
    log = MetricLog(tmp_path, tracked, system=False)
    log(1, {"train/grad_norm": float("inf")})
    log.close()
    ((_, value),) = points(tracked, "train/grad_norm")
    assert value != value


def test_refusing_store_gives_a_warning_and_loses_no_point(
    tracked: track.TrackedRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        away = MetricLog(tmp_path, track.TrackedRun("sqlite:////proc/no/such/folder.db", tracked.run_id), system=False)
        away(1, {"train/loss": 4.0})
        away.close()
    assert "MLflow does not accept metrics" in caplog.text
    back = MetricLog(tmp_path, tracked, system=False)
    back.close()
    assert points(tracked, "train/loss") == [(1, 4.0)]


@pytest.fixture
def unresponsive_uri(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The address of a server that accepts connections and never answers; clients wait for one second."""
    monkeypatch.setattr(store_timeout, "ANSWER_S", 1.0)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_database_error_is_one_line(
    place: track.TrackingStore,
    corpus: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """MLflow writes each traceback to stderr, and SQLAlchemy its statement: a full disk once gave 170 lines of
    output."""
    with (
        track.run(place, tmp_path, corpus, METADATA) as tracked,
        closing(sqlite3.connect(place.uri.removeprefix("sqlite:///"))) as other,
    ):
        other.execute("ALTER TABLE tags RENAME TO gone")
        with track.log_and_suppress("a tag"):
            track.tag(tracked, note="of a tag")
        other.execute("ALTER TABLE gone RENAME TO tags")
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("MLflow does not accept a tag: ")
    assert "\n" not in warning
    assert "Traceback" not in capfd.readouterr().err


def test_import_of_mlflow_does_not_count_as_waiting_for_the_store(
    tracked: track.TrackedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a busy machine the import took 18 seconds, so an available store always "did not answer"."""
    loaded_in = list[str]()

    def load(uri: str) -> None:
        loaded_in.append(threading.current_thread().name)

    monkeypatch.setattr(track, "load_mlflow", load)
    monkeypatch.setattr(metrics, "load_mlflow", load)
    assert not track.explain_missing_run(tracked)
    assert loaded_in[0] != "mlflow call"  # this thread has a timeout of some seconds
    loaded_in.clear()
    log = MetricLog(tmp_path, tracked, system=False)
    log(1, {"train/loss": 3.0})
    log.close()
    assert loaded_in[0] != "mlflow call"
    assert not pending_updates(tmp_path)
    assert "does not accept" not in caplog.text


def test_unresponsive_server_gets_all_points_later(
    unresponsive_uri: str,
    tracked: track.TrackedRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(metrics, "FLUSH_S", 0.1)
    log = MetricLog(tmp_path, track.TrackedRun(unresponsive_uri, tracked.run_id), system=False)
    (tmp_path / "sample.txt").write_text("a sample")
    log.mirror(tmp_path / "sample.txt", "samples")
    for step in range(20):
        log(step, {"train/loss": float(step)})
        time.sleep(0.02)
    log.close()
    assert pending_updates(tmp_path) == {"points": 20, "files": [["sample.txt", "samples"]]}
    assert "it lacks 20 points and 1 files" in caplog.text
    MetricLog(tmp_path, tracked, system=False).close()
    assert points(tracked, "train/loss") == [(step, float(step)) for step in range(20)]
    found = track.client_of(tracked.uri).list_artifacts(tracked.run_id, "samples")
    assert [each.path for each in found] == ["samples/sample.txt"]
    assert pending_updates(tmp_path) == {}


@contextmanager
def locked(place: track.TrackingStore) -> Iterator[None]:
    """Another process holds a write lock on the store inside the block."""
    other = sqlite3.connect(place.uri.removeprefix("sqlite:///"), isolation_level=None, timeout=60)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def test_unanswered_call_times_out_and_failing_call_raises(unresponsive_uri: str) -> None:
    response_status = threading.Event()
    with pytest.raises(TimeoutError, match="no answer within 1 s"):
        wait_while_available(unresponsive_uri, response_status.wait)
    response_status.set()
    assert wait_while_available(unresponsive_uri, response_status.wait)
    with pytest.raises(ValueError, match="its own"):
        wait_while_available(unresponsive_uri, lambda: int("its own"))


def test_known_run_continues_without_its_store_and_is_logged_later(
    place: track.TrackingStore,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The run was once refused, although its record is in its directory."""
    monkeypatch.setattr(track, "HEARTBEAT_S", 0.1)
    with pytest.raises(Preempted), track.run(place, tmp_path, corpus, METADATA) as first:
        raise Preempted("stopped")
    assert mlflow_run(first).info.status == "KILLED"
    with ExitStack() as running:
        with locked(place):
            tracked = running.enter_context(track.run(place, tmp_path, corpus, METADATA))
            log = MetricLog(tmp_path, tracked, system=False)
            log(1, {"train/loss": 4.0})
        until = time.monotonic() + 60
        while mlflow_run(tracked).info.status != "RUNNING" and time.monotonic() < until:
            time.sleep(0.1)
        assert mlflow_run(tracked).info.status == "RUNNING"
        log.close()
    assert tracked == first
    assert "training continues; metrics will be synced later" in caplog.text
    assert mlflow_run(tracked).info.status == "FINISHED"
    assert points(tracked, "train/loss") == [(1, 4.0)]
    assert pending_updates(tmp_path) == {}


def test_new_run_is_refused_without_a_store(
    unresponsive_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with (
        pytest.raises(ResourceError, match="does not answer"),
        track.run(track.TrackingStore(unresponsive_uri), tmp_path, None, METADATA),
    ):
        pass


def test_deleted_store_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(track, "client_of", lambda uri: f"a client of {uri}")
    monkeypatch.setattr(track, "reap", lambda place: [])
    place = track.tracking_store(tmp_path / "removed")
    assert track.query_store(place, str) == f"a client of {place.uri}"


def test_final_status_is_logged_later_if_the_store_is_locked(
    place: track.TrackingStore, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start once set the finished run to FAILED."""
    with sqlite3.connect(place.uri.removeprefix("sqlite:///"), isolation_level=None, timeout=60) as other:
        with track.run(place, tmp_path, corpus, METADATA) as tracked:
            other.execute("BEGIN EXCLUSIVE")
        other.execute("ROLLBACK")
    other.close()
    assert pending_updates(tmp_path)["status"] == "FINISHED"
    for thread in threading.enumerate():
        if thread.name == "mlflow call":  # the call may still succeed
            thread.join()
    gone = json.dumps(asdict(owner(pid=2**22 + 1)))
    client = track.client_of(place.uri)
    client.update_run(tracked.run_id, status="RUNNING")
    client.set_tag(tracked.run_id, track.OWNER, gone)
    assert tracked.run_id in track.reap(place)
    assert mlflow_run(tracked).info.status == "FINISHED"
    assert pending_updates(tmp_path) == {}


def test_run_keeps_its_final_status_if_its_store_has_another_address(
    place: track.TrackingStore, tmp_path: Path
) -> None:
    """`sesame ui` knows the database file behind an unavailable server. It once set the finished run to FAILED."""
    client = track.client_of(place.uri)
    tracked = track.create_run(client, place, "by a server")
    run_file = {"uri": "http://127.0.0.1:1", "run_id": tracked.run_id}
    (tmp_path / track.RUN_FILE).write_text(json.dumps(run_file))
    client.set_tag(tracked.run_id, track.FOLDER, tmp_path.as_uri())
    client.set_tag(tracked.run_id, track.OWNER, json.dumps(asdict(owner(pid=2**22 + 1))))
    add_pending(tmp_path, status="FINISHED", detail="")
    assert tracked.run_id in track.reap(place)
    assert mlflow_run(tracked).info.status == "FINISHED"
    assert pending_updates(tmp_path) == {}


def test_pending_final_status_replaces_that_of_the_store(place: track.TrackingStore, tmp_path: Path) -> None:
    """Each repeated command once reported that it logs pending data, and left the run FAILED."""
    tracked = track.create_run(track.client_of(place.uri), place, "called failed")
    track.client_of(place.uri).set_terminated(tracked.run_id, "FAILED")
    (tmp_path / track.RUN_FILE).write_text(json.dumps(asdict(tracked)))
    add_pending(tmp_path, status="FINISHED", detail="")
    catch_up(tmp_path, place, ignore_progress)
    assert mlflow_run(tracked).info.status == "FINISHED"
    assert pending_updates(tmp_path) == {}


def test_system_metrics_are_logged(
    place: track.TrackingStore, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.2")
    monkeypatch.setattr(metrics, "FLUSH_S", 0.1)
    with track.run(place, tmp_path, corpus, METADATA) as tracked:
        log = MetricLog(tmp_path, tracked)
        until = time.monotonic() + 240
        while time.monotonic() < until and "system/cpu_utilization_percentage" not in mlflow_run(tracked).data.metrics:
            time.sleep(0.1)
        log.close()
    assert {"system/cpu_utilization_percentage", "system/system_memory_usage_megabytes"} <= set(
        mlflow_run(tracked).data.metrics
    )


def test_mlflow_prints_nothing_to_stdout(monkeypatch: pytest.MonkeyPatch, place: track.TrackingStore) -> None:
    from mlflow.environment_variables import MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT as SILENT

    monkeypatch.delenv(SILENT.name, raising=False)
    track.client_of(place.uri)
    assert SILENT.get()


# Figures


def test_run_gets_figures_only_for_metrics_with_points() -> None:
    history = {"train/loss": [(1, 5.0), (2, 4.0)], "eval/loss": [(2, 4.5)], "train/learning_rate": [(1, 0.1), (2, 0.2)]}
    drawn = figures.plot_training(history)
    assert sorted(drawn) == ["learning_rate", "loss_curve"]
    assert [line.get_label() for line in drawn["loss_curve"].axes[0].lines] == ["train", "eval"]


# The UI


def test_port_in_use_gives_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ResourceError, match=r"port \d+ of 127.0.0.1 .*--port"):
            server.ui(tmp_path, taken.getsockname()[1])


@pytest.mark.slow
def test_ui_serves_runs_and_figures_on_loopback(corpus: Path, tmp_path: Path) -> None:
    with track.run(track.tracking_store(tmp_path), tmp_path / "run", corpus, METADATA) as tracked:
        track.log_figures(tracked, {"loss_curve": figures.plot_curves({"loss": [(1, 2.0), (2, 1.0)]}, "loss")})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = (
        "from pathlib import Path; from orchestration.tracking import server\n"
        f"server.ui(Path({str(tmp_path)!r}), {port})"
    )
    served = subprocess.Popen([sys.executable, "-c", program], cwd=Path(track.__file__).parents[2])
    try:
        address = f"http://127.0.0.1:{port}"
        page = fetch_when_ready(f"{address}/")
        assert f"<head><script>{server.SCRIPT}</script>".encode() in page
        (script,) = re.findall(rb"static/js/main[.a-z0-9]*js", page)
        assert b"mlflow" in fetch_when_ready(f"{address}/static-files/{script.decode()}")
        picture = f"{address}/get-artifact?path=figures/loss_curve.png&run_uuid={tracked.run_id}"
        assert fetch_when_ready(picture).startswith(b"\x89PNG")
        create, kind = f"{address}/api/2.0/mlflow/experiments/create", {"Content-Type": "application/json"}
        outside = json.dumps({"name": "outside", "artifact_location": "file:///tmp#/../../etc"}).encode()
        assert {
            # a name that resolves to this host (DNS rebinding)
            "another host": response_status(f"{address}/", {"Host": "evil.example"}),
            "another page": response_status(create, {**kind, "Origin": "http://evil.example"}, b'{"name": "theirs"}'),
            "out of the artifacts": response_status(picture.replace("figures/", "../../../")),
            "out of a location": response_status(create, kind, outside),
        } == {"another host": 403, "another page": 403, "out of the artifacts": 400, "out of a location": 400}
        here = psutil.Process(served.pid)
        listening = {
            each.laddr.ip
            for process in [here, *here.children(recursive=True)]
            for each in process.net_connections("tcp")
            if each.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}
    finally:
        processes = [psutil.Process(served.pid), *psutil.Process(served.pid).children(recursive=True)]
        for process in reversed(processes):
            process.kill()
        served.wait()


def response_status(url: str, headers: Mapping[str, str] = MappingProxyType({}), body: bytes | None = None) -> int:
    """Return the status of an HTTP response."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, dict(headers)), timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def fetch_when_ready(url: str) -> bytes:
    """Return the response body, as soon as the server gives one."""
    until = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return bytes(answer.read())
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


@pytest.mark.parametrize("folder", ["/proc/no such place", "file/below"])
def test_uncreatable_directory_is_not_reported_as_an_mlflow_failure(folder: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        BadInput, match=r"(no such place|file/below): cannot be created \(.*\); set another --output-dir, or"
    ):
        track.query_store(track.tracking_store(tmp_path / folder), lambda client: None)


def test_files_are_mirrored_and_the_last_of_a_name_is_kept(tracked: track.TrackedRun, tmp_path: Path) -> None:
    log, file = MetricLog(tmp_path, tracked, system=False), tmp_path / "samples" / "step-4.txt"
    file.parent.mkdir()
    for text in ("first", "again"):
        file.write_text(text)
        log.mirror(file, "samples")
    log.close()
    client = track.client_of(tracked.uri)
    assert [found.path for found in client.list_artifacts(tracked.run_id, "samples")] == ["samples/step-4.txt"]
    kept = client.download_artifacts(tracked.run_id, "samples/step-4.txt", str(tmp_path))
    assert Path(kept).read_text(encoding="utf-8") == "again"


def test_samples_of_a_decoder_are_logged(tracked: track.TrackedRun, corpus: Path, tmp_path: Path) -> None:
    run = replace(gpt(mini_run(corpus, tmp_path)), sample_prompts=("w7 w9", ""), eval_every=2)
    run = replace(run, phases=(replace(run.phases[0], steps=4),))
    log, engine = MetricLog(tmp_path, tracked, system=False), LocalEngine(build_model(run), run.optimizer, run.engine)
    pretrain(run, engine, log, Callbacks(write_samples=worker.sample_writer(run, engine, log)))
    log.close()
    client = track.client_of(tracked.uri)
    names = [file.path for file in client.list_artifacts(tracked.run_id, "samples")]
    assert names == [f"samples/step-{step}.txt" for step in (0, 2, 4)]
    (tmp_path / "logged").mkdir()
    for name in names:
        logged = Path(client.download_artifacts(tracked.run_id, name, str(tmp_path / "logged"))).read_text(
            encoding="utf-8"
        )
        assert logged == (tmp_path / name).read_text()
        assert logged.startswith("w7 w9")


def test_dataset_logged_simultaneously_by_two_runs_is_accepted() -> None:
    """MLflow's SQLite store raises this error if another run adds the dataset between lookup and insert."""
    from mlflow.entities import Dataset

    message: list[Exception] = [MlflowException("(sqlite3.IntegrityError) UNIQUE constraint failed: datasets.name")]
    dataset_names: list[str] = []

    class Client:
        def log_inputs(self, run_id: str, inputs: Any) -> None:
            if message:
                raise message.pop()
            dataset_names.extend(one.dataset.name for one in inputs)

    log_dataset(Client(), "run", Dataset("mini", "0", "local", "{}"), "training")
    assert dataset_names == ["mini"]
    message.append(MlflowException("no such run"))
    with pytest.raises(MlflowException, match="no such run"):
        log_dataset(Client(), "run", Dataset("mini", "0", "local", "{}"), "training")

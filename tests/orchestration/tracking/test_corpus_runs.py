"""Corpora in MLflow on SQLite: one run per corpus, its final status, its progress and its data card."""

import json
import logging
import os
import platform
import shutil
import socket
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from orchestration import figures, progress
from orchestration.progress import ignore_progress
from orchestration.tracking import corpus_metadata, corpus_progress, corpus_run, log_card
from orchestration.tracking import corpus_runs as track_corpus
from orchestration.tracking import runs as track
from orchestration.tracking.corpus_runs import CorpusRun
from pipeline.readers import TextReader
from pipeline.spec import Clean, Corpus
from preprocessing.errors import Preempted
from preprocessing.manifest import Count, Ledger, Manifest
from preprocessing.tokenization import WordPiece
from tests.orchestration.tracking.test_stores import UNUSUAL_NAMES
from tests.training.corpora import mini_corpus

SPEC = Corpus(name="mine", sources=(TextReader(path="/texts"),), clean=Clean(languages=("en",)))
METADATA = corpus_metadata(SPEC, WordPiece(vocab_size=4_096), "sesame corpus mine")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> track.TrackingStore:
    return track.tracking_store(tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus. Tests copy it under different names, so that each copy has its own digest."""
    return mini_corpus(tmp_path_factory.mktemp("text") / "corpus", num_train=3, num_validation=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "it's a corpus"  # an apostrophe would break an unescaped MLflow filter


def build_corpus(folder: Path, finished: Path) -> Manifest:
    """Copy the corpus and write a manifest with dropped documents."""
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    found = Manifest.load(folder)
    tokens = sum(shard.tokens for shard in found.shards)
    ledger = Ledger(Count(6, 600, tokens), Count(4, 500, tokens), {"too_short": Count(2, 100)})
    named = Manifest(folder.parent.name, "", "", found.vocab, {}, found.shards, ledger)
    named.save(folder)
    return named


def mlflow_run(run: CorpusRun) -> Any:
    return track.client_of(run.tracked.uri).get_run(run.tracked.run_id)


def points(run: CorpusRun, key: str) -> list[float]:
    history = track.client_of(run.tracked.uri).get_metric_history(run.tracked.run_id, key)
    return [point.value for point in sorted(history, key=lambda point: point.timestamp)]


def run_ids(place: track.TrackingStore) -> set[str]:
    client = track.client_of(place.uri)
    among = client.get_experiment_by_name(track_corpus.EXPERIMENT)
    return {found.info.run_id for found in client.search_runs([among.experiment_id])} if among else set()


def test_corpus_run_has_settings_counts_and_the_corpus_digest(
    place: track.TrackingStore, finished: Path, folder: Path
) -> None:
    with corpus_run(place, folder, METADATA) as run:
        assert mlflow_run(run).info.status == "RUNNING"
        manifest = build_corpus(folder, finished)
    logged = mlflow_run(run)
    assert logged.info.status == "FINISHED"
    assert logged.data.params["corpus.sources.0.kind"] == "text"
    assert logged.data.params["corpus.clean.languages.0"] == "en"
    assert logged.data.params["vocab.vocab_size"] == "4096"
    assert "corpus.clean.fix_text" not in logged.data.params  # default values are not logged
    assert logged.data.tags["command"] == "sesame corpus mine"
    assert logged.data.tags["sesame.run_dir"] == folder.as_uri()
    assert "/texts" in logged.data.tags["mlflow.note.content"]
    assert logged.data.tags["sesame.corpus_digest"] == manifest.digest
    values = logged.data.metrics
    assert (values["documents"], values["bytes"]) == (4, 500)
    assert values["tokens"] == values["train/tokens"] + values["validation/tokens"] > 100
    assert (values["dropped/too_short/documents"], values["dropped/too_short/bytes"]) == (2, 100)
    assert values["seconds"] > 0
    (lineage,) = logged.inputs.dataset_inputs
    assert (lineage.dataset.name, lineage.dataset.digest) == (manifest.name, manifest.digest[:36])
    assert [(each.key, each.value) for each in lineage.tags] == [("mlflow.data.context", "corpus")]
    told_file = track.client_of(place.uri).download_artifacts(run.tracked.run_id, "corpus.json")
    assert json.loads(Path(told_file).read_text(encoding="utf-8"))["corpus"]["name"] == "mine"


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("a bug"), "FAILED"), (Preempted("stop"), "KILLED"), (None, "FINISHED")]
)
def test_exception_decides_the_final_status(
    error: BaseException | None, status: str, place: track.TrackingStore, finished: Path, folder: Path
) -> None:
    with pytest.raises(type(error)) if error else nullcontext(), corpus_run(place, folder, METADATA) as run:
        build_corpus(folder, finished)
        if error:
            raise error
    assert mlflow_run(run).info.status == status


def test_run_without_a_finished_corpus_has_failed(place: track.TrackingStore, folder: Path) -> None:
    with pytest.raises(Exception, match="not a finished corpus"), corpus_run(place, folder, METADATA) as run:
        pass
    assert mlflow_run(run).info.status == "FAILED"


def test_repeated_command_adds_nothing(place: track.TrackingStore, finished: Path, folder: Path) -> None:
    with corpus_run(place, folder, METADATA) as first:
        build_corpus(folder, finished)
    before, known = mlflow_run(first), run_ids(place)
    with corpus_run(place, folder, METADATA) as second:
        assert second.is_known
        assert second.tracked == first.tracked
        assert corpus_progress(second) is ignore_progress
    assert run_ids(place) == known
    after = mlflow_run(second)
    assert (after.data.metrics, after.data.tags) == (before.data.metrics, before.data.tags)
    assert (after.info.status, after.info.end_time) == ("FINISHED", before.info.end_time)


def test_moved_corpus_is_found_by_its_digest(place: track.TrackingStore, finished: Path, folder: Path) -> None:
    with corpus_run(place, folder, METADATA) as first:
        build_corpus(folder, finished)
    shutil.move(folder, folder.with_name("moved"))
    with corpus_run(place, folder.with_name("moved"), METADATA) as second:
        assert second.is_known
        assert second.tracked == first.tracked


def test_resumed_job_continues_its_run(place: track.TrackingStore, finished: Path, folder: Path) -> None:
    with pytest.raises(Preempted), corpus_run(place, folder, METADATA) as first:
        raise Preempted("stop")
    with corpus_run(place, folder, METADATA) as second:
        assert second == first
        build_corpus(folder, finished)
    assert mlflow_run(second).info.status == "FINISHED"


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", UNUSUAL_NAMES)
def test_corpus_in_an_unusual_directory_continues_its_run(
    name: str, place: track.TrackingStore, tmp_path: Path
) -> None:
    """The store query contains the directory."""
    with pytest.raises(Preempted), corpus_run(place, tmp_path / name, METADATA) as first:
        raise Preempted("stopped")
    with pytest.raises(Preempted), corpus_run(place, tmp_path / name, METADATA) as second:
        raise Preempted("stopped")
    with pytest.raises(Preempted), corpus_run(place, tmp_path / f"{name}x", METADATA) as other:
        raise Preempted("stopped")
    assert first == second != other


def test_another_corpus_in_the_directory_gets_another_run(
    place: track.TrackingStore, finished: Path, folder: Path
) -> None:
    with corpus_run(place, folder, METADATA) as first:
        build_corpus(folder, finished)
    (folder / "manifest.json").unlink()
    with corpus_run(place, folder, METADATA) as second:
        build_corpus(folder, finished)
    assert second.tracked != first.tracked


def test_lock_holder_takes_over_from_a_recorded_live_owner(
    place: track.TrackingStore, finished: Path, folder: Path
) -> None:
    parent = psutil.Process(os.getppid())
    other = track.Owner(platform.node(), parent.pid, parent.create_time(), time.time())
    with pytest.raises(Preempted), corpus_run(place, folder, METADATA) as run:
        raise Preempted("stop")
    track.client_of(place.uri).update_run(run.tracked.run_id, status="RUNNING")
    track.tag(run.tracked, **{track.OWNER: json.dumps(asdict(other))})
    with corpus_run(place, folder, METADATA) as again:
        assert again == run
        build_corpus(folder, finished)


# Progress


def event(done: int, stage: str = "text") -> dict[str, object]:
    return {"stage": stage, "done": done, "total": 4, "documents": 10 * done, "bytes": 100 * done, "tokens": 5 * done}


def test_progress_is_logged_in_intervals_and_at_the_end_of_a_stage(
    place: track.TrackingStore, finished: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1_000.0
    with corpus_run(place, folder, METADATA) as run:
        report = corpus_progress(run)
        with monkeypatch.context() as patched:
            for module in (track_corpus, progress):
                patched.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s, time=time.time))
            for done in (0, 1, 2):
                report(event(done))
                now_s += 2.0
            for done in (3, 4):
                report(event(done))
            report({"stage": "vocabulary"})
        build_corpus(folder, finished)
    assert points(run, "text/documents") == [0, 30, 40]  # after 0, 6 and 6 seconds
    assert points(run, "text/bytes_per_second") == [0, 50, pytest.approx(400 / 6)]
    assert points(run, "text/tokens_per_second")[1] == 2.5


def test_progress_step_is_the_seconds_since_the_run_started(
    place: track.TrackingStore, finished: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with corpus_run(place, folder, METADATA) as run:
        later = time.time() + 90
        with monkeypatch.context() as patched:
            patched.setattr(track_corpus, "time", SimpleNamespace(monotonic=time.monotonic, time=lambda: later))
            corpus_progress(run)(event(4))
        build_corpus(folder, finished)
    (point,) = track.client_of(place.uri).get_metric_history(run.tracked.run_id, "text/tokens")
    assert 89 <= point.step < 150


def test_failing_store_gives_one_warning(
    place: track.TrackingStore, finished: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), corpus_run(place, folder, METADATA) as run:
        report = corpus_progress(run)
        track.client_of(place.uri).set_terminated(run.tracked.run_id)
        track.client_of(place.uri).delete_run(run.tracked.run_id)
        report(event(4))
        assert run.progress
        run.progress.close()
        report(event(4, "corpus"))
        run.progress.close()
        track.client_of(place.uri).restore_run(run.tracked.run_id)
        build_corpus(folder, finished)
    assert caplog.text.count("MLflow does not accept the progress of the corpus") == 1
    assert mlflow_run(run).info.status == "FINISHED"


# Data card


def test_data_card_is_logged_once(place: track.TrackingStore, finished: Path, folder: Path) -> None:
    with corpus_run(place, folder, METADATA) as run:
        build_corpus(folder, finished)
    page = folder.parent / "data_card.html"
    page.write_text("first")
    drawn = {"zipf": figures.plot_zipf([(1, 10), (2, 5)])}
    for content in ("first", "second"):
        page.write_text(content)
        with corpus_run(place, folder, METADATA) as again:
            log_card(again, [page], drawn)
    client = track.client_of(place.uri)
    assert [file.path for file in client.list_artifacts(run.tracked.run_id, "card")] == ["card/data_card.html"]
    kept = client.download_artifacts(run.tracked.run_id, "card/data_card.html")
    assert Path(kept).read_text(encoding="utf-8") == "first"
    assert [file.path for file in client.list_artifacts(run.tracked.run_id, "figures")] == ["figures/zipf.png"]


def test_corpus_progress_does_not_wait_for_an_unresponsive_server() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(8)
        away = track.TrackedRun(f"http://127.0.0.1:{mute.getsockname()[1]}", "0" * 32)
        track.load_mlflow(away.uri)
        report = corpus_progress(CorpusRun(away, is_known=False))
        for done in (1, 2):
            report({"stage": "clean", "done": done, "total": 2, "documents": done, "bytes": done, "tokens": done})

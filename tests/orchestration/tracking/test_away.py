"""A store that is unavailable, hangs or fails: a run waits only briefly and loses no data."""

import json
import logging
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException

from orchestration.jobs import catch_up
from orchestration.launch import group
from orchestration.progress import ignore_progress
from orchestration.tracking import MetricLog, store_timeout
from orchestration.tracking import runs as track
from orchestration.tracking.metadata import collect_metadata
from orchestration.tracking.store_timeout import (
    add_logged,
    add_pending,
    clear_pending,
    describe_failure,
    pending_updates,
    wait_while_available,
)
from preprocessing.errors import ResourceError
from tests.orchestration.tracking.servers import Health
from tests.training.corpora import mini_corpus

METADATA = track.Metadata("mini", {"peak": 1e-3}, {"recipe_hash": "abc"}, "* a net", {"recipe.yaml": "name: mini\n"})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> track.TrackingStore:
    return track.tracking_store(tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mini_corpus(tmp_path_factory.mktemp("text") / "corpus", num_train=3, num_validation=1)


@pytest.fixture
def unresponsive_uri(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that accepts connections and never answers; clients wait for one second."""
    monkeypatch.setattr(store_timeout, "ANSWER_S", 1.0)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def create_run(place: track.TrackingStore, folder: Path) -> track.TrackedRun:
    """Create an MLflow run of `folder` in the store, without any metadata."""
    tracked = track.create_run(track.client_of(place.uri), place, "mini")
    (folder / track.RUN_FILE).write_text(json.dumps({"uri": tracked.uri, "run_id": tracked.run_id}))
    return tracked


def mlflow_run(tracked: track.TrackedRun) -> Any:
    return track.client_of(tracked.uri).get_run(tracked.run_id)


def fail(*args: object, **more: object) -> None:
    raise OSError("gone in between")


# At the start


@pytest.mark.slow
def test_known_run_continues_while_its_store_is_locked(place: track.TrackingStore, tmp_path: Path) -> None:
    """A separate process is needed: MLflow caches opened stores, and then needs no database access to create a
    client."""
    create_run(place, tmp_path)
    program = (
        "import sys; from pathlib import Path; from orchestration.tracking import runs as track\n"
        "folder, place = Path(sys.argv[1]), track.TrackingStore(sys.argv[2])\n"
        "track.load_mlflow(place.uri)\n"
        "with track.run(place, folder, None, track.Metadata('mini')):\n"
        "    pass\n"
    )
    holder = sqlite3.connect(place.uri.removeprefix("sqlite:///"), isolation_level=None, timeout=60)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        ran = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), place.uri],
            cwd=Path(track.__file__).parents[2], capture_output=True, text=True,
        )  # fmt: skip
    finally:
        holder.close()
    assert ran.returncode == 0, ran.stderr
    assert "training continues; metrics will be synced later" in ran.stderr
    assert "Traceback" not in ran.stderr
    kept = pending_updates(tmp_path)
    assert (kept["status"], kept["tags"]["mlflow.source.name"]) == ("FINISHED", "sesame")


def test_new_run_is_refused_if_the_server_never_answers(unresponsive_uri: str, tmp_path: Path) -> None:
    track.load_mlflow(unresponsive_uri)
    with (
        pytest.raises(
            ResourceError, match=r"^MLflow at .* does not answer \(.*timed out.*\); check MLFLOW_TRACKING_URI$"
        ),
        track.run(track.TrackingStore(unresponsive_uri), tmp_path, None, METADATA),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_metadata_is_logged_later_if_the_store_fails_after_opening(
    place: track.TrackingStore,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(track, "flush_pending_metadata", fail)
        with track.run(place, tmp_path, corpus, METADATA) as tracked:
            pass
    assert "MLflow does not accept the metadata of the run: gone in between" in caplog.text
    assert mlflow_run(tracked).info.status == "FINISHED"
    assert "recipe_hash" not in mlflow_run(tracked).data.tags
    catch_up(tmp_path, place, ignore_progress)
    found = mlflow_run(tracked)
    assert (found.data.tags["recipe_hash"], found.data.params) == ("abc", {"peak": "0.001"})
    assert [one.dataset.name for one in found.inputs.dataset_inputs] == ["mini_world"]
    kept = track.client_of(place.uri).download_artifacts(tracked.run_id, "recipe.yaml", str(tmp_path))
    assert Path(kept).read_text(encoding="utf-8") == "name: mini\n"
    assert pending_updates(tmp_path) == {}


def test_store_error_does_not_create_a_second_run(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_run(place, tmp_path)

    class Failing:
        def get_run(self, run_id: str) -> None:
            raise MlflowException("status code 503")

    with pytest.raises(MlflowException, match="503"):
        track._resume(Failing(), place, tmp_path)


def test_partial_model_of_a_killed_command_is_deleted(place: track.TrackingStore, tmp_path: Path) -> None:
    (tmp_path / ".mlflow-x1" / "model").mkdir(parents=True)
    with track.run(place, tmp_path, None, METADATA):
        assert not list(tmp_path.glob(".mlflow-*"))


def test_deleted_store_is_not_created_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that outlived its killed command once created a new directory in place of the deleted one."""
    gone = tmp_path / "gone" / "mlflow.db"
    log = MetricLog(tmp_path, track.TrackedRun(f"sqlite:///{gone}", "0" * 32), system=False)
    log(1, {"train/loss": 3.0})
    log.close()
    assert not gone.parent.exists()
    assert f"MLflow does not accept metrics ({gone} does not exist)" in caplog.text


# Tags


def test_tags_that_a_store_does_not_accept_are_logged_later(
    place: track.TrackingStore, unresponsive_uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracked = create_run(place, tmp_path)
    track.log_tags(track.TrackedRun(unresponsive_uri, tracked.run_id), tmp_path, skip_steps=[3, 4])
    assert pending_updates(tmp_path) == {"tags": {"skip_steps": "[3, 4]"}}
    assert "MLflow does not accept skip_steps of the run: no answer within 1 s" in caplog.text
    track.log_tags(tracked, tmp_path, restarts=2)
    tags = mlflow_run(tracked).data.tags
    assert (tags["skip_steps"], tags["restarts"]) == ("[3, 4]", "2")
    assert pending_updates(tmp_path) == {}


def test_hardware_tags_of_a_worker_are_logged_later(place: track.TrackingStore, tmp_path: Path) -> None:
    tracked = create_run(place, tmp_path)
    away = track.TrackedRun("sqlite:////proc/no/such/folder.db", tracked.run_id)
    MetricLog(tmp_path, away, system=False, tags={"hardware.gpus": "8 x H100"}).close()
    assert pending_updates(tmp_path) == {"tags": {"hardware.gpus": "8 x H100"}}
    catch_up(tmp_path, place, ignore_progress)
    assert mlflow_run(tracked).data.tags["hardware.gpus"] == "8 x H100"
    assert pending_updates(tmp_path) == {}


def test_newer_pending_value_is_kept_while_an_older_one_is_logged(tmp_path: Path) -> None:
    add_logged(tmp_path, {"tags": {"restarts": "1", "num_workers": "2"}})
    sent = {"tags": dict(pending_updates(tmp_path)["tags"])}
    add_logged(tmp_path, {"tags": {"restarts": "2"}})
    store_timeout.clear_logged(tmp_path, sent)
    assert pending_updates(tmp_path) == {"tags": {"restarts": "2"}}
    clear_pending(tmp_path, "tags")
    assert not list(tmp_path.iterdir())


def test_restarts_are_counted_across_commands(tmp_path: Path) -> None:
    assert [group._increment(tmp_path / group.RESTARTS) for _ in range(3)] == [1, 2, 3]
    (tmp_path / group.RESTARTS).write_text("[")
    assert group._increment(tmp_path / group.RESTARTS) == 1


def test_new_record_sets_all_old_files_aside(tmp_path: Path) -> None:
    add_pending(tmp_path, points=3)
    group._increment(tmp_path / group.RESTARTS)
    group._set_aside(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old-mlflow-behind.json", "old-restarts.json"]


# At the end


def test_failed_figures_and_model_are_logged_later(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tracked = create_run(place, tmp_path)
    log = MetricLog(tmp_path, tracked, system=False)
    for step in (1, 2):
        log(step, {"train/loss": 3.0})
    log.close()
    with monkeypatch.context() as patch:
        patch.setattr(group.tracking, "log_figures", fail)
        group.log_results(tmp_path, tracked, True)
    assert pending_updates(tmp_path) == {"results": True}
    assert "repeat the command to log them: gone in between" in caplog.text
    catch_up(tmp_path, place, ignore_progress)
    assert track.client_of(place.uri).list_artifacts(tracked.run_id, "figures")
    assert pending_updates(tmp_path) == {}


def test_late_failure_of_an_abandoned_call_is_not_reported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The late failure was once reported among the messages of the next command."""
    monkeypatch.setattr(store_timeout, "ANSWER_S", 0.5)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        log = MetricLog(tmp_path, track.TrackedRun(uri, "0" * 32), system=False)
        log(1, {"train/loss": 3.0})
        log.close()
    log._mirror.join()
    assert caplog.text.count("MLflow does not accept metrics") == 1


def test_figures_are_pending_if_the_server_never_answers(unresponsive_uri: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "time": 1.0, "metrics": {"train/loss": 3.0}}\n')
    group.log_results(tmp_path, track.TrackedRun(unresponsive_uri, "0" * 32), True)
    assert pending_updates(tmp_path) == {"points": 1, "results": True}


def test_next_command_closes_a_run_left_open_by_a_slow_database(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store over a slow network that is neither a server nor an SQLite file."""
    tracked, is_inside = create_run(place, tmp_path), threading.Event()

    def while_there(uri: str, call: Any) -> None:
        raise TimeoutError("no answer within 1 s")

    with monkeypatch.context() as patch:
        patch.setattr(track, "wait_while_available", while_there)
        with track.heartbeat(tracked, tmp_path):
            is_inside.set()
    assert mlflow_run(tracked).info.status == "RUNNING"
    assert pending_updates(tmp_path) == {"status": "FINISHED", "detail": ""}
    catch_up(tmp_path, place, ignore_progress)
    assert mlflow_run(tracked).info.status == "FINISHED"
    assert pending_updates(tmp_path) == {}


class DelayedClient:
    """A client that is slow to set a run to RUNNING."""

    def __init__(self, client: Any, asked: threading.Event, proceed: threading.Event) -> None:
        self.client, self.asked, self.may_continue = client, asked, proceed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def update_run(self, run_id: str, status: str = "", **more: Any) -> None:
        if status == "RUNNING":
            self.asked.set()
            assert self.may_continue.wait(60)
        self.client.update_run(run_id, status=status, **more)


def test_run_end_waits_for_a_heartbeat_in_progress(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late heartbeat once set the run to RUNNING after it was FINISHED."""
    tracked, asked, proceed, client_of = (
        create_run(place, tmp_path),
        threading.Event(),
        threading.Event(),
        track.client_of,
    )
    monkeypatch.setattr(track, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(track, "client_of", lambda uri: DelayedClient(client_of(uri), asked, proceed))
    with track.heartbeat(tracked, tmp_path, is_open=False):
        assert asked.wait(60)
        threading.Timer(0.2, proceed.set).start()
    assert client_of(place.uri).get_run(tracked.run_id).info.status == "FINISHED"


def test_pending_status_of_an_earlier_start_is_cleared(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked = create_run(place, tmp_path)
    add_pending(tmp_path, status="KILLED", detail="stopped")
    monkeypatch.setattr(track, "_open_run", lambda *args: (tracked, False))
    with track.run(place, tmp_path, None, METADATA):
        assert "status" not in pending_updates(tmp_path)
    assert mlflow_run(tracked).info.status == "FINISHED"
    assert pending_updates(tmp_path) == {}


def test_run_reserves_disk_space_to_record_its_end(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, a failed run once could not be recorded, neither in the store nor in its directory."""
    tracked, noted = create_run(place, tmp_path), []
    monkeypatch.setattr(track, "add_pending", lambda folder, **lacks: noted.append((folder / track.ROOM).exists()))
    with track.heartbeat(tracked, tmp_path):
        assert (tmp_path / track.ROOM).stat().st_blocks * 512 >= track.ROOM_BYTES
    assert noted == [False]
    assert not (tmp_path / track.ROOM).exists()


def test_deleted_pending_file_does_not_block_others(
    place: track.TrackingStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracked = create_run(place, tmp_path)
    (tmp_path / "there.txt").write_text("text")
    add_pending(tmp_path, files=[["gone.txt", "samples"], ["there.txt", "samples"]])
    with caplog.at_level(logging.WARNING):
        MetricLog(tmp_path, tracked, system=False).close()
    found = track.client_of(place.uri).list_artifacts(tracked.run_id, "samples")
    assert [each.path for each in found] == ["samples/there.txt"]
    assert f"{tmp_path / 'gone.txt'}: was removed" in caplog.text
    assert pending_updates(tmp_path) == {}


# Timeouts of calls


@pytest.mark.slow
def test_long_call_may_continue_while_the_store_answers(unresponsive_uri: str) -> None:
    def late() -> str:
        time.sleep(1.5)
        return "done"

    server = HTTPServer(("127.0.0.1", 0), Health)
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://ann:secret@127.0.0.1:{server.server_port}"
        assert wait_while_available(uri, late) == "done"
        with pytest.raises(TimeoutError, match=r"no answer within 0\.7 s"):
            wait_while_available(uri, late, 0.7)
        server.shutdown()
    with pytest.raises(TimeoutError, match="no answer within"):
        wait_while_available(unresponsive_uri, late)


def test_database_is_available_if_it_accepts_connections(unresponsive_uri: str) -> None:
    database = unresponsive_uri.replace("http://", "postgresql+psycopg://ann:secret@") + "/db"
    assert describe_failure(database, 0.5) == ""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        assert "refused" in describe_failure(f"postgresql://127.0.0.1:{probe.getsockname()[1]}/db", 0.5)
    assert describe_failure("file:///no/way/to/ask", 0.5) == ""


# Passwords


def test_password_is_neither_stored_nor_printed_and_the_command_continues(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = track.TrackingStore("http://ann:secret@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", secret.uri)
    with pytest.raises(ResourceError) as refused, track.run(secret, tmp_path, None, METADATA):
        pass
    tracked = track.TrackedRun(secret.uri, "0" * 32)
    with monkeypatch.context() as patch:
        patch.setattr(track, "query_store", lambda *args: tracked)
        assert track._open_run(secret, tmp_path, "mini") == (tracked, True)
    assert json.loads((tmp_path / track.RUN_FILE).read_text())["uri"] == "http://127.0.0.1:9"
    assert track.existing_run(tmp_path) == tracked
    with track.run(secret, tmp_path, None, METADATA) as again:
        assert again == tracked
    catch_up(tmp_path, secret, ignore_progress)
    assert "secret" not in str(refused.value) + caplog.text
    assert "http://***@127.0.0.1:9 does not answer" in caplog.text


def test_metadata_of_a_run_is_json(corpus: Path, tmp_path: Path) -> None:
    metadata: Mapping[str, Any] = collect_metadata(METADATA, tmp_path, corpus)
    assert json.loads(json.dumps(metadata)) == metadata
    assert metadata["tags"]["host"] == os.uname().nodename

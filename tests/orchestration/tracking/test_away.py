"""A store that is away, hangs or fails: nothing waits for it, and nothing of a run is lost."""

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
def mute(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that takes connections and never answers, which is waited for for a second."""
    monkeypatch.setattr(store_timeout, "ANSWER_S", 1.0)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def begun(place: track.TrackingStore, folder: Path) -> track.TrackedRun:
    """A run of `folder` that the store knows, and knows no more of."""
    tracked = track.create_run(track.client_of(place.uri), place, "mini")
    (folder / track.RUN_FILE).write_text(json.dumps({"uri": tracked.uri, "run_id": tracked.run_id}))
    return tracked


def look(tracked: track.TrackedRun) -> Any:
    return track.client_of(tracked.uri).get_run(tracked.run_id)


def fail(*args: object, **more: object) -> None:
    raise OSError("gone in between")


# At the start


@pytest.mark.slow
def test_a_known_run_goes_on_where_its_store_is_locked_before_this_process_opens_it(
    place: track.TrackingStore, tmp_path: Path
) -> None:
    """In a process of its own: MLflow keeps a store that it has opened, and then needs no database to make a client."""
    begun(place, tmp_path)
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


def test_a_new_run_does_not_wait_for_a_server_that_never_answers(mute: str, tmp_path: Path) -> None:
    track.load_mlflow(mute)
    with (
        pytest.raises(
            ResourceError, match=r"^MLflow at .* does not answer \(.*timed out.*\); check MLFLOW_TRACKING_URI$"
        ),
        track.run(track.TrackingStore(mute), tmp_path, None, METADATA),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_gone_just_after_it_was_opened_gets_later_what_the_run_says(
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
    assert look(tracked).info.status == "FINISHED"
    assert "recipe_hash" not in look(tracked).data.tags
    catch_up(tmp_path, place, ignore_progress)
    found = look(tracked)
    assert (found.data.tags["recipe_hash"], found.data.params) == ("abc", {"peak": "0.001"})
    assert [one.dataset.name for one in found.inputs.dataset_inputs] == ["mini_world"]
    kept = track.client_of(place.uri).download_artifacts(tracked.run_id, "recipe.yaml", str(tmp_path))
    assert Path(kept).read_text(encoding="utf-8") == "name: mini\n"
    assert pending_updates(tmp_path) == {}


def test_a_store_that_fails_otherwise_makes_no_second_run(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(place, tmp_path)

    class Failing:
        def get_run(self, run_id: str) -> None:
            raise MlflowException("status code 503")

    with pytest.raises(MlflowException, match="503"):
        track._resume(Failing(), place, tmp_path)


def test_what_a_killed_start_has_left_of_a_model_is_removed(place: track.TrackingStore, tmp_path: Path) -> None:
    (tmp_path / ".mlflow-x1" / "model").mkdir(parents=True)
    with track.run(place, tmp_path, None, METADATA):
        assert not list(tmp_path.glob(".mlflow-*"))


def test_a_store_that_is_gone_is_not_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that outlived its killed command for seconds made a new folder where the old one had been."""
    gone = tmp_path / "gone" / "mlflow.db"
    log = MetricLog(tmp_path, track.TrackedRun(f"sqlite:///{gone}", "0" * 32), system=False)
    log(1, {"train/loss": 3.0})
    log.close()
    assert not gone.parent.exists()
    assert f"MLflow does not accept metrics ({gone} does not exist)" in caplog.text


# Tags


def test_tags_that_a_store_does_not_take_are_told_later(
    place: track.TrackingStore, mute: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracked = begun(place, tmp_path)
    track.log_tags(track.TrackedRun(mute, tracked.run_id), tmp_path, skip_steps=[3, 4])
    assert pending_updates(tmp_path) == {"tags": {"skip_steps": "[3, 4]"}}
    assert "MLflow does not accept skip_steps of the run: no answer within 1 s" in caplog.text
    track.log_tags(tracked, tmp_path, restarts=2)
    tags = look(tracked).data.tags
    assert (tags["skip_steps"], tags["restarts"]) == ("[3, 4]", "2")
    assert pending_updates(tmp_path) == {}


def test_what_a_worker_runs_on_is_told_later(place: track.TrackingStore, tmp_path: Path) -> None:
    tracked = begun(place, tmp_path)
    away = track.TrackedRun("sqlite:////proc/no/such/folder.db", tracked.run_id)
    MetricLog(tmp_path, away, system=False, tags={"hardware.gpus": "8 x H100"}).close()
    assert pending_updates(tmp_path) == {"tags": {"hardware.gpus": "8 x H100"}}
    catch_up(tmp_path, place, ignore_progress)
    assert look(tracked).data.tags["hardware.gpus"] == "8 x H100"
    assert pending_updates(tmp_path) == {}


def test_a_value_that_is_noted_while_an_older_one_is_told_stays(tmp_path: Path) -> None:
    add_logged(tmp_path, {"tags": {"restarts": "1", "num_workers": "2"}})
    sent = {"tags": dict(pending_updates(tmp_path)["tags"])}
    add_logged(tmp_path, {"tags": {"restarts": "2"}})
    store_timeout.clear_logged(tmp_path, sent)
    assert pending_updates(tmp_path) == {"tags": {"restarts": "2"}}
    clear_pending(tmp_path, "tags")
    assert not list(tmp_path.iterdir())


def test_restarts_of_all_commands_add_up(tmp_path: Path) -> None:
    assert [group._increment(tmp_path / group.RESTARTS) for _ in range(3)] == [1, 2, 3]
    (tmp_path / group.RESTARTS).write_text("[")
    assert group._increment(tmp_path / group.RESTARTS) == 1


def test_a_new_record_takes_nothing_of_the_old_one(tmp_path: Path) -> None:
    add_pending(tmp_path, points=3)
    group._increment(tmp_path / group.RESTARTS)
    group._set_aside(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old-mlflow-behind.json", "old-restarts.json"]


# The end


def test_figures_and_model_that_fail_are_noted_and_told_later(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tracked = begun(place, tmp_path)
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


def test_a_call_that_fails_after_it_was_given_up_is_not_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It spoke of the run before, beside what the next command said."""
    monkeypatch.setattr(store_timeout, "ANSWER_S", 0.5)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        log = MetricLog(tmp_path, track.TrackedRun(uri, "0" * 32), system=False)
        log(1, {"train/loss": 3.0})
        log.close()
    log._mirror.join()
    assert caplog.text.count("MLflow does not accept metrics") == 1


def test_figures_are_not_waited_for_where_a_server_never_answers(mute: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "time": 1.0, "metrics": {"train/loss": 3.0}}\n')
    group.log_results(tmp_path, track.TrackedRun(mute, "0" * 32), True)
    assert pending_updates(tmp_path) == {"points": 1, "results": True}


def test_a_run_that_a_slow_database_does_not_close_is_closed_by_the_next_command(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over a wide network: a store that is no server and no file of sqlite."""
    tracked, once = begun(place, tmp_path), threading.Event()

    def while_there(uri: str, call: Any) -> None:
        raise TimeoutError("no answer within 1 s")

    with monkeypatch.context() as patch:
        patch.setattr(track, "wait_while_available", while_there)
        with track.heartbeat(tracked, tmp_path):
            once.set()
    assert look(tracked).info.status == "RUNNING"
    assert pending_updates(tmp_path) == {"status": "FINISHED", "detail": ""}
    catch_up(tmp_path, place, ignore_progress)
    assert look(tracked).info.status == "FINISHED"
    assert pending_updates(tmp_path) == {}


class Late:
    """A client that says only after a while that a run is RUNNING."""

    def __init__(self, client: Any, asked: threading.Event, go_on: threading.Event) -> None:
        self.client, self.asked, self.go_on = client, asked, go_on

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def update_run(self, run_id: str, status: str = "", **more: Any) -> None:
        if status == "RUNNING":
            self.asked.set()
            assert self.go_on.wait(60)
        self.client.update_run(run_id, status=status, **more)


def test_a_heartbeat_on_its_way_when_a_run_ends_is_waited_for(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It called the run RUNNING, after it had been FINISHED."""
    tracked, asked, go_on, client_of = begun(place, tmp_path), threading.Event(), threading.Event(), track.client_of
    monkeypatch.setattr(track, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(track, "client_of", lambda uri: Late(client_of(uri), asked, go_on))
    with track.heartbeat(tracked, tmp_path, is_open=False):
        assert asked.wait(60)
        threading.Timer(0.2, go_on.set).start()
    assert client_of(place.uri).get_run(tracked.run_id).info.status == "FINISHED"


def test_how_an_earlier_start_ended_is_forgotten_by_one_that_goes_on_without_the_store(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracked = begun(place, tmp_path)
    add_pending(tmp_path, status="KILLED", detail="stopped")
    monkeypatch.setattr(track, "_open_run", lambda *args: (tracked, False))
    with track.run(place, tmp_path, None, METADATA):
        assert "status" not in pending_updates(tmp_path)
    assert look(tracked).info.status == "FINISHED"
    assert pending_updates(tmp_path) == {}


def test_a_run_keeps_room_on_its_disk_to_note_how_it_ended(
    place: track.TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk without a byte left neither the store nor the run's folder took that it had failed."""
    tracked, noted = begun(place, tmp_path), []
    monkeypatch.setattr(track, "add_pending", lambda folder, **lacks: noted.append((folder / track.ROOM).exists()))
    with track.heartbeat(tracked, tmp_path):
        assert (tmp_path / track.ROOM).stat().st_blocks * 512 >= track.ROOM_BYTES
    assert noted == [False]
    assert not (tmp_path / track.ROOM).exists()


def test_a_file_that_is_gone_holds_up_no_other(
    place: track.TrackingStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracked = begun(place, tmp_path)
    (tmp_path / "there.txt").write_text("text")
    add_pending(tmp_path, files=[["gone.txt", "samples"], ["there.txt", "samples"]])
    with caplog.at_level(logging.WARNING):
        MetricLog(tmp_path, tracked, system=False).close()
    found = track.client_of(place.uri).list_artifacts(tracked.run_id, "samples")
    assert [each.path for each in found] == ["samples/there.txt"]
    assert f"{tmp_path / 'gone.txt'}: was removed" in caplog.text
    assert pending_updates(tmp_path) == {}


# How long a call may take


@pytest.mark.slow
def test_a_long_call_is_waited_for_as_long_as_the_store_answers(mute: str) -> None:
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
        wait_while_available(mute, late)


def test_a_database_is_there_where_it_takes_connections(mute: str) -> None:
    database = mute.replace("http://", "postgresql+psycopg://ann:secret@") + "/db"
    assert describe_failure(database, 0.5) == ""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        assert "refused" in describe_failure(f"postgresql://127.0.0.1:{probe.getsockname()[1]}/db", 0.5)
    assert describe_failure("file:///no/way/to/ask", 0.5) == ""


# Passwords


def test_a_password_is_neither_kept_nor_said_and_the_same_command_goes_on(
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


def test_what_a_run_says_can_be_kept_as_json(corpus: Path, tmp_path: Path) -> None:
    says: Mapping[str, Any] = collect_metadata(METADATA, tmp_path, corpus)
    assert json.loads(json.dumps(says)) == says
    assert says["tags"]["host"] == os.uname().nodename

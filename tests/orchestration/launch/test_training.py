"""What happens around the groups of a run: workers of an earlier command, an old record, a Ray that is gone."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestration import tracking
from orchestration.launch import group as launch
from orchestration.launch import placement
from orchestration.launch.nodes import WorkerRequirements
from orchestration.launch.worker_errors import NodeDied, WorkerDied, WorkersDisconnected
from orchestration.progress import ignore_progress
from orchestration.signals import StopRequest, stop_signals
from preprocessing.errors import Preempted, ResourceError
from tests.training.corpora import mini_run
from training.run import Run
from training.specs import EngineSettings

WORKER = """
import sys, time
from pathlib import Path
from preprocessing.lock import register_process
register_process(Path(sys.argv[1]))
print("there", flush=True)
time.sleep(600)
"""


class Enough(Exception):
    """The rest does not matter here."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "run").mkdir()
    return mini_run(tmp_path / "corpus", tmp_path / "run")


@pytest.fixture
def earlier(run: Run) -> Iterator[subprocess.Popen[str]]:
    """A worker of a command that was killed."""
    worker = subprocess.Popen([sys.executable, "-c", WORKER, run.folder], stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout
        assert worker.stdout.readline() == "there\n"
        yield worker
    finally:
        worker.kill()
        worker.communicate()


def start(run: Run, on_progress: Any) -> None:
    place = tracking.tracking_store(Path(run.folder).parent / "out")
    launch.pretrain(run, num_workers=1, place=place, metadata=tracking.Metadata("mini"), on_progress=on_progress)


# Workers of an earlier command


def test_nothing_is_moved_or_read_before_earlier_workers_have_ended(
    earlier: subprocess.Popen[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They train on until Ray ends them: a new start cut the record that they went on to write."""
    record, stages = Path(run.folder) / tracking.METRICS_FILE, list[str]()
    record.write_text("")

    def look(event: Mapping[str, Any]) -> None:
        stages.append(event["stage"])
        assert record.exists() == (event["stage"] == "waiting for earlier workers")
        if event["stage"] != "waiting for earlier workers":
            raise Enough
        earlier.kill()

    monkeypatch.setattr(launch, "kill_abandoned", lambda folder: [])  # they are those of another machine
    with pytest.raises(Enough):
        start(run_anew(run), look)
    assert list(dict.fromkeys(stages)) == ["waiting for earlier workers", "opening MLflow"]


def run_anew(run: Run) -> Run:
    return mini_run(Path(run.corpus), Path(run.folder), resume="never")


@pytest.mark.parametrize("is_stopped", [False, True])
def test_earlier_workers_of_this_machine_are_ended_at_once(
    earlier: subprocess.Popen[str], is_stopped: bool, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """A stopped one stayed: "end them and repeat the command", after a minute."""
    if is_stopped:
        earlier.send_signal(signal.SIGSTOP)
    stages = list[str]()

    def look(event: Mapping[str, Any]) -> None:
        stages.append(event["stage"])
        if event["stage"] != "waiting for earlier workers":
            raise Enough

    with pytest.raises(Enough):
        start(run, look)
    assert earlier.wait(10) == -signal.SIGKILL
    assert f"ended processes [{earlier.pid}], workers of an earlier command" in caplog.text


@pytest.mark.usefixtures("earlier")
def test_a_signal_ends_the_wait_for_earlier_workers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "kill_abandoned", lambda folder: [])
    with pytest.raises(Preempted, match="stopped while workers of an earlier command were ending"):
        start(run, lambda event: os.kill(os.getpid(), signal.SIGTERM))


@pytest.mark.usefixtures("earlier")
def test_earlier_workers_that_stay_are_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "LEFT_S", 0.1)
    monkeypatch.setattr(launch, "kill_abandoned", lambda folder: [])  # they are those of another machine
    with pytest.raises(ResourceError, match="workers of an ended command still use"):
        start(run, ignore_progress)


# An old record


def test_each_resume_never_begins_a_new_record_and_keeps_all_old_ones(tmp_path: Path) -> None:
    """The third one wrote over the first; what MLflow lacked of an old one went to the new run."""
    for number in range(3):
        (tmp_path / tracking.METRICS_FILE).write_text(f"{number}")
        (tmp_path / tracking.RUN_FILE).write_text(f"{number}")
        (tmp_path / tracking.BEHIND).write_text(f"{number}")
        launch._set_aside(tmp_path)
    launch._set_aside(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        f"{old}{name}": str(number)
        for number, old in enumerate(("old-", "old2-", "old3-"))
        for name in (tracking.METRICS_FILE, tracking.RUN_FILE, tracking.BEHIND)
    }


# A Ray that is gone


def training(run: Run, stop_request: StopRequest) -> launch.Training:
    return launch.Training(
        run,
        WorkerRequirements(num_workers=1),
        {},
        cast(Any, None),
        stop_request,
        launch.RestartPolicy(max_restarts=2),
        None,
        ignore_progress,
    )


@contextmanager
def lost(*given: Any) -> Iterator[Any]:
    raise WorkerDied("Ray's raylet died", 0)
    yield


def test_a_ray_that_dies_while_workers_are_placed_is_started_again(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    renewed: list[str] = []
    monkeypatch.setattr(launch, "place_workers", lost)
    monkeypatch.setattr(launch, "find_fault", lambda: "Ray's raylet")
    monkeypatch.setattr(launch, "renew", lambda: renewed.append("Ray"))
    monkeypatch.setattr(tracking, "log_tags", lambda *what, **tags: None)
    with caplog.at_level(logging.WARNING), pytest.raises(ResourceError, match="raylet died after step 0, 3 times"):
        training(run, StopRequest()).result()
    assert renewed == ["Ray", "Ray"]


def test_who_waits_for_a_place_sees_that_ray_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    of_ray = import_module("ray.util.placement_group")
    monkeypatch.setattr(of_ray, "placement_group", lambda *given, **how: SimpleNamespace(wait=lambda wait_s: False))
    monkeypatch.setattr(placement, "find_fault", lambda: "Ray's raylet")
    with (
        pytest.raises(WorkerDied, match="Ray's raylet died"),
        placement.place_workers(WorkerRequirements(num_workers=1), EngineSettings(), {}),
    ):
        pytest.fail("placed")


def test_a_signal_does_not_wait_for_a_new_ray(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was only noted, while Ray took up to six minutes."""

    def renew() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    monkeypatch.setattr(launch, "renew", renew)
    with pytest.raises(Preempted, match="stopped while Ray was started again"), stop_signals() as asked:
        training(run, asked)._renew()
    with pytest.raises(Preempted, match="stopped while Ray was started again"):
        training(run, StopRequest(signal.SIGTERM))._renew()


def test_workers_that_lose_each_other_again_and_again_are_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracking, "log_tags", lambda *what, **tags: None)
    each = training(run, StopRequest())
    with caplog.at_level(logging.WARNING):
        each._count_death(WorkersDisconnected("a worker lost its connection to the others (...)", 7))
        each._count_death(WorkersDisconnected("a worker lost its connection to the others (...)", 7))
    with pytest.raises(
        ResourceError, match=r"after step 7, 3 times without progress; check the network between"
    ) as found:
        each._count_death(WorkersDisconnected("a worker lost its connection to the others (...)", 7))
    assert "\n" not in str(found.value)


def test_a_worker_that_dies_again_on_a_node_that_is_gone_is_no_restart_in_vain(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray says it only seconds later, and gives workers to that node until then: these deaths must not end the run."""
    monkeypatch.setattr(launch, "NOTICED_S", 0.3)
    asked_for: list[Any] = []
    answers = iter(["", "", "node 10.0.0.7"])
    nodes = SimpleNamespace(describe_missing=lambda ids: asked_for.append(ids) or next(answers, ""))
    each, group = training(run, StopRequest()), cast(Any, SimpleNamespace(nodes=("a", "b")))
    each.nodes, each.furthest = cast(Any, nodes), 20
    died = WorkerDied("worker 0 died (no cause known)", 21)
    assert each._explain_death(died, group) is died  # there was progress: on with it at once
    assert asked_for == []
    again = WorkerDied("a worker died (no cause known)", 15)
    found = each._explain_death(again, group)
    assert (type(found), str(found), found.step) == (NodeDied, "node 10.0.0.7 is gone", 15)
    assert each._explain_death(again, group) is again  # all of its nodes are there

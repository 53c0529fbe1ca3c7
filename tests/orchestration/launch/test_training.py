"""Events around the worker groups of a run: workers of an earlier command, an old metrics record, a lost Ray."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
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


class StopTest(Exception):
    """Ends a test early; the later code is not under test."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "run").mkdir()
    return mini_run(tmp_path / "corpus", tmp_path / "run")


@pytest.fixture
def earlier_worker(run: Run) -> Iterator[subprocess.Popen[str]]:
    """A worker of a killed command."""
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


def test_run_waits_for_earlier_workers_before_it_touches_files(
    earlier_worker: subprocess.Popen[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier workers train until Ray ends them. A new start once truncated the record that they still wrote."""
    record, stages = Path(run.folder) / tracking.METRICS_FILE, list[str]()
    record.write_text("")

    def check_event(event: Mapping[str, Any]) -> None:
        stages.append(event["stage"])
        assert record.exists() == (event["stage"] == "waiting for earlier workers")
        if event["stage"] != "waiting for earlier workers":
            raise StopTest
        earlier_worker.kill()

    monkeypatch.setattr(launch, "kill_abandoned", lambda folder: [])  # simulate workers on another machine
    with pytest.raises(StopTest):
        start(run_without_resume(run), check_event)
    assert list(dict.fromkeys(stages)) == ["waiting for earlier workers", "opening MLflow"]


def run_without_resume(run: Run) -> Run:
    return mini_run(Path(run.corpus), Path(run.folder), resume="never")


@pytest.mark.parametrize("is_stopped", [False, True])
def test_earlier_workers_on_this_machine_are_killed_at_once(
    earlier_worker: subprocess.Popen[str], is_stopped: bool, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """A suspended worker once stayed, and the user was told after a minute to end it."""
    if is_stopped:
        earlier_worker.send_signal(signal.SIGSTOP)
    stages = list[str]()

    def check_event(event: Mapping[str, Any]) -> None:
        stages.append(event["stage"])
        if event["stage"] != "waiting for earlier workers":
            raise StopTest

    with pytest.raises(StopTest):
        start(run, check_event)
    assert earlier_worker.wait(10) == -signal.SIGKILL
    assert f"ended processes [{earlier_worker.pid}], workers of an earlier command" in caplog.text


@pytest.mark.usefixtures("earlier_worker")
def test_signal_ends_the_wait_for_earlier_workers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "kill_abandoned", lambda folder: [])
    with pytest.raises(Preempted, match="stopped while workers of an earlier command were ending"):
        start(run, lambda event: os.kill(os.getpid(), signal.SIGTERM))


@pytest.mark.usefixtures("earlier_worker")
def test_remaining_earlier_workers_give_a_one_line_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "LEFT_S", 0.1)
    monkeypatch.setattr(launch, "kill_abandoned", lambda folder: [])  # simulate workers on another machine
    with pytest.raises(ResourceError, match="workers of an ended command still use"):
        start(run, ignore_progress)


# Old record


def test_resume_never_keeps_every_old_record(tmp_path: Path) -> None:
    """The third record once overwrote the first, and pending MLflow data of an old run went to the new run."""
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


# Lost Ray


def make_training(run: Run, stop_request: StopRequest) -> launch.Training:
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
def raise_worker_died(*given: Any) -> Iterator[Any]:
    raise WorkerDied("Ray's raylet died", 0)
    yield


def test_ray_that_dies_during_placement_is_restarted(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    renewed: list[str] = []
    monkeypatch.setattr(launch, "place_workers", raise_worker_died)
    monkeypatch.setattr(launch, "find_fault", lambda: "Ray's raylet")
    monkeypatch.setattr(launch, "renew", lambda: renewed.append("Ray"))
    monkeypatch.setattr(tracking, "log_tags", lambda *what, **tags: None)
    with caplog.at_level(logging.WARNING), pytest.raises(ResourceError, match="raylet died after step 0, 3 times"):
        make_training(run, StopRequest()).result()
    assert renewed == ["Ray", "Ray"]


def test_placement_detects_a_lost_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    of_ray = import_module("ray.util.placement_group")
    monkeypatch.setattr(of_ray, "placement_group", lambda *given, **how: SimpleNamespace(wait=lambda wait_s: False))
    monkeypatch.setattr(placement, "find_fault", lambda: "Ray's raylet")
    with (
        pytest.raises(WorkerDied, match="Ray's raylet died"),
        placement.place_workers(WorkerRequirements(num_workers=1), EngineSettings(), {}),
    ):
        pytest.fail("the workers were placed")


def test_signal_interrupts_the_restart_of_ray(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal was once only recorded, while Ray took up to six minutes to start."""

    def renew() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    monkeypatch.setattr(launch, "renew", renew)
    with pytest.raises(Preempted, match="stopped while Ray was started again"), stop_signals() as asked:
        make_training(run, asked)._renew()
    with pytest.raises(Preempted, match="stopped while Ray was started again"):
        make_training(run, StopRequest(signal.SIGTERM))._renew()


def test_repeated_connection_loss_gives_a_one_line_error(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracking, "log_tags", lambda *what, **tags: None)
    training_run = make_training(run, StopRequest())
    with caplog.at_level(logging.WARNING):
        training_run._count_death(WorkersDisconnected("a worker lost its connection to the others (...)", 7))
        training_run._count_death(WorkersDisconnected("a worker lost its connection to the others (...)", 7))
    with pytest.raises(
        ResourceError, match=r"after step 7, 3 times without progress; check the network between"
    ) as found:
        training_run._count_death(WorkersDisconnected("a worker lost its connection to the others (...)", 7))
    assert "\n" not in str(found.value)


def test_death_on_a_lost_node_does_not_count_as_a_failed_restart(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray reports a lost node only seconds later and places workers on it until then. Such deaths must not end the
    run."""
    monkeypatch.setattr(launch, "NOTICED_S", 0.3)
    asked_for: list[Any] = []
    answers = iter(["", "", "node 10.0.0.7"])
    nodes = SimpleNamespace(describe_missing=lambda ids: asked_for.append(ids) or next(answers, ""))
    training_run, group = make_training(run, StopRequest()), cast(Any, SimpleNamespace(nodes=("a", "b")))
    training_run.nodes, training_run.furthest = cast(Any, nodes), 20
    died = WorkerDied("worker 0 died (no cause known)", 21)
    assert training_run._explain_death(died, group) is died  # there was progress, so the run restarts at once
    assert asked_for == []
    again = WorkerDied("a worker died (no cause known)", 15)
    found = training_run._explain_death(again, group)
    assert (type(found), str(found), found.step) == (NodeDied, "node 10.0.0.7 is gone", 15)
    assert training_run._explain_death(again, group) is again  # all nodes are available


# Layouts


def test_layouts_of_all_commands_and_restarts_are_tagged(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    step, tagged = 0, list[dict[str, Any]]()
    monkeypatch.setattr(launch, "find_newest_step", lambda folder: step)
    monkeypatch.setattr(tracking, "log_tags", lambda tracked, folder, texts, **tags: tagged.append(texts | tags))

    def begin(training_run: launch.Training, num_workers: int) -> None:
        training_run._log_layout(cast(Any, SimpleNamespace(num=num_workers)))

    begin(make_training(run, StopRequest()), 1)
    assert tagged == []
    step = 20
    resumed = make_training(replace(run, engine=EngineSettings(zero_stage=3)), StopRequest())
    begin(resumed, 1)
    step = 30
    begin(resumed, 2)
    assert tagged[0]["layout_history"] == "1 worker, ZeRO 2, fp32 from step 0; 1 worker, ZeRO 3, fp32 from step 20"
    assert tagged[0]["num_workers_history"] == "1 from step 0"
    assert tagged[1]["num_workers_history"] == "1 from step 0, 2 from step 30"
    assert [one["step"] for one in json.loads(tagged[1]["layouts.json"])] == [0, 20, 30]
    begin(make_training(replace(run, resume="never"), StopRequest()), 1)  # its checkpoints belong to an earlier run
    assert len(tagged) == 2

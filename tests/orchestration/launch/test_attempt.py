"""One start of a group, as its workers answer; none of them is a process."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import ray
from ray.exceptions import RayTaskError, RuntimeEnvSetupError

from orchestration.launch import attempt as launch
from orchestration.launch.attempt import Attempt
from orchestration.launch.heartbeat import DAY_S, STEP, Heartbeat
from orchestration.launch.out_of_memory import MemoryUse
from orchestration.launch.running_workers import RunningWorkers
from orchestration.launch.worker import WorkerStatus
from orchestration.launch.worker_errors import WorkerDied, WorkersDisconnected
from orchestration.progress import ignore_progress
from orchestration.signals import StopRequest
from preprocessing.errors import Preempted, ResourceError
from tests.training.corpora import mini_run
from training.run import CHECKPOINTS, Run
from training.specs import EngineSettings

GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 600000ms for recv"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return mini_run(tmp_path / "corpus", tmp_path / "run", engine=EngineSettings(init_timeout_seconds=600))


def attempt(run: Run, stop_request: StopRequest | None = None, hang_s: float = 600.0, workers: int = 2) -> Attempt:
    group = cast(Any, SimpleNamespace(num=workers, nodes=()))
    return Attempt(group, run, cast(Any, None), stop_request or StopRequest(), hang_s, ignore_progress)


def hear(each: Attempt, rank: int, doing: str, now_s: float, done: int = 10) -> None:
    each.monitor.record(rank, Heartbeat(each.monitor._seen[rank].heartbeat.beats + 1, done, doing), now_s)


# Asked to stop


@pytest.mark.parametrize("doing", ["checkpoint", "evaluation", "first step", "exporting weights"])
def test_a_stop_waits_for_what_takes_longer_than_a_step(run: Run, doing: str) -> None:
    """A checkpoint of more than 20 s was thrown away by the SIGTERM that had asked for it."""
    each = attempt(run, StopRequest(15))
    hear(each, 0, doing, 100.0)
    hear(each, 1, STEP, 100.0)
    each._check_stopping([0, 1], stop_sent_s=100.0, now_s=160.0)


def test_a_stop_does_not_wait_for_workers_whose_step_does_not_end(run: Run) -> None:
    each = attempt(run, StopRequest(15))
    for rank in (0, 1):
        hear(each, rank, STEP, 100.0)
    each._check_stopping([0, 1], stop_sent_s=100.0, now_s=119.0)
    with pytest.raises(
        Preempted, match="stopped after step 10 without a checkpoint of this step, because workers did not answer"
    ):
        each._check_stopping([0, 1], stop_sent_s=100.0, now_s=121.0)


def test_a_stop_does_not_wait_for_a_mute_worker_whatever_it_did(run: Run) -> None:
    each = attempt(run, StopRequest(15))
    for rank in (0, 1):
        hear(each, rank, "checkpoint", 100.0)
    each.polls._open[1] = cast(Any, None), 100.0
    with pytest.raises(Preempted, match="worker 1 did not answer"):
        each._check_stopping([0, 1], stop_sent_s=100.0, now_s=109.0)


# Workers that lose each other


def fail(each: Attempt, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The attempt, whose first step ends in this error."""

    def wait() -> Any:
        raise error

    monkeypatch.setattr(each, "_start", lambda: None)
    monkeypatch.setattr(each, "_wait_for_result", wait)
    monkeypatch.setattr(each, "_poll_last", lambda: None)
    monkeypatch.setattr(each, "_end", lambda: None)
    each.result()


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(f"{GLOO} operation to complete\nException raised from ..."),
        RuntimeError("[/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:2911"),
        RuntimeError("[/gloo/transport/tcp/pair.cc:598] Read error [10.0.0.2]:2911: Connection reset by peer"),
        RuntimeError("NCCL error in: ProcessGroupNCCL.cpp:2, remote process exited or there was a network error"),
        type("DistBackendError", (RuntimeError,), {})("wait timeout after 600000ms"),
    ],
)
def test_workers_that_lost_each_other_are_started_again(
    run: Run, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a traceback, and the end of the run."""
    with pytest.raises(WorkersDisconnected) as found:
        fail(attempt(run), monkeypatch, RayTaskError("train", "traceback", error))
    assert (
        str(found.value)
        == f"a worker lost its connection to the others ({type(error).__name__}: {str(error).splitlines()[0]})"
    )


def test_an_error_that_is_a_bug_stays_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError("mat1 and mat2 shapes cannot be multiplied")
    with pytest.raises(RayTaskError):
        fail(attempt(run), monkeypatch, RayTaskError("train", "gloo: Connection closed by peer", error))


def test_the_bug_in_one_worker_is_told_not_its_echo_in_another(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    echo, bug = RuntimeError("Connection closed by peer"), ValueError("mat1 and mat2 shapes cannot be multiplied")
    errors = [RayTaskError("train", "", echo), RayTaskError("train", "", bug)]

    def get(error: Exception) -> None:
        raise error

    monkeypatch.setattr(ray, "wait", lambda waiting, **_: (waiting, []))
    monkeypatch.setattr(ray, "get", get)
    each = attempt(run)
    each.state = replace(each.state, workers=RunningWorkers(results=tuple(errors)))
    with pytest.raises(RayTaskError) as found:
        fail(each, monkeypatch, errors[0])
    assert found.value.cause is bug


def test_a_node_that_cannot_be_prepared_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeEnvSetupError("[Errno 28] No space left on device:\n'/tmp/ray'\n" + 9_000 * "x")
    with pytest.raises(
        ResourceError, match=r"No space left on device: '/tmp/ray' x+\); check the free disk space"
    ) as found:
        fail(attempt(run), monkeypatch, error)
    assert len(str(found.value)) < 600
    assert "\n" not in str(found.value)


def test_the_watch_is_there_before_a_collective_call_fails(run: Run) -> None:
    """With the keys as they are both waited 600 s, and other work than steps is given six times as long."""
    each = attempt(run)
    assert each.run.engine.init_timeout_seconds == each.monitor.timeout_s == DAY_S
    for rank in (0, 1):
        hear(each, rank, "checkpoint", 100.0)
    assert each.monitor.limit_s([0, 1]) < each.run.engine.init_timeout_seconds
    assert attempt(run, hang_s=0.0).run.engine.init_timeout_seconds == 600
    assert attempt(run, hang_s=86_400.0).run.engine.init_timeout_seconds == 6 * 86_400 + 60


# How far it is


def test_a_start_that_dies_early_is_one_after_the_newest_checkpoint(run: Run) -> None:
    (Path(run.folder) / CHECKPOINTS / "step-000001500").mkdir(parents=True)
    assert attempt(run).step == 1500
    assert attempt(replace(run, resume="never")).step == 0


def test_updates_that_were_heard_of_are_progress_though_none_is_logged_yet(run: Run) -> None:
    each = attempt(run)
    each._handle_status(0, WorkerStatus(0, Heartbeat(5, 17, STEP), (), (), MemoryUse()))
    assert each.step == 17


# The driver itself


def test_the_time_in_which_the_driver_was_stopped_is_no_silence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-Z and `fg` the first look at the workers ended them."""
    turns_s = iter([0.0, 1.0, 901.0, 902.0, 1300.0])
    each = attempt(run, workers=1)
    hear(each, 0, STEP, 0.0)
    future = object()
    each.state = replace(each.state, workers=RunningWorkers(results=(future,)))
    monkeypatch.setattr(launch.time, "monotonic", lambda: next(turns_s))
    monkeypatch.setattr(ray, "wait", lambda waiting, **_: ([], waiting))
    monkeypatch.setattr(ray, "get", lambda done: None)
    monkeypatch.setattr(each, "_poll", lambda at_work: None)
    monkeypatch.setattr(each, "_check_surroundings", lambda: None)
    silent: list[float] = []
    look: Callable[..., float] = each.monitor.silent_s
    monkeypatch.setattr(each.monitor, "silent_s", lambda *given: silent.append(look(*given)) or 0.0)
    with pytest.raises(StopIteration):
        each._wait_for_result()
    assert silent == [0.0] * 4


def test_each_slow_worker_is_told_with_its_own_factor(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    each = attempt(run)
    actor = SimpleNamespace(log_metrics=SimpleNamespace(remote=lambda metrics: None))
    started = tuple(cast(Any, SimpleNamespace(process=f"process {rank}")) for rank in (0, 1))
    each.state = replace(each.state, workers=RunningWorkers((actor,), started))
    each._report_slow(7.0, {0: 2.0, 1: 7.0})
    assert [record.getMessage().split("take it ")[1][:3] for record in caplog.records] == ["2.0", "7.0"]
    assert issubclass(WorkersDisconnected, WorkerDied)

"""One attempt of a worker group, with simulated worker reports instead of processes."""

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


def record_activity(current: Attempt, rank: int, doing: str, now_s: float, done: int = 10) -> None:
    current.monitor.record(rank, Heartbeat(current.monitor._seen[rank].heartbeat.beats + 1, done, doing), now_s)


# Stop requests


@pytest.mark.parametrize("doing", ["checkpoint", "evaluation", "first step", "exporting weights"])
def test_stop_waits_for_work_longer_than_a_step(run: Run, doing: str) -> None:
    """A checkpoint that took more than 20 s was once lost, although the SIGTERM itself had requested it."""
    current = attempt(run, StopRequest(15))
    record_activity(current, 0, doing, 100.0)
    record_activity(current, 1, STEP, 100.0)
    current._check_stopping([0, 1], stop_sent_s=100.0, now_s=160.0)


def test_stop_does_not_wait_for_a_step_that_hangs(run: Run) -> None:
    current = attempt(run, StopRequest(15))
    for rank in (0, 1):
        record_activity(current, rank, STEP, 100.0)
    current._check_stopping([0, 1], stop_sent_s=100.0, now_s=119.0)
    with pytest.raises(
        Preempted, match="stopped after step 10 without a checkpoint of this step, because workers did not answer"
    ):
        current._check_stopping([0, 1], stop_sent_s=100.0, now_s=121.0)


def test_stop_does_not_wait_for_an_unresponsive_worker(run: Run) -> None:
    current = attempt(run, StopRequest(15))
    for rank in (0, 1):
        record_activity(current, rank, "checkpoint", 100.0)
    current.polls._open[1] = cast(Any, None), 100.0
    with pytest.raises(Preempted, match="worker 1 did not answer"):
        current._check_stopping([0, 1], stop_sent_s=100.0, now_s=109.0)


# Workers that lose their connection


def run_failing(current: Attempt, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Run the attempt; waiting for its result raises this error."""

    def wait() -> Any:
        raise error

    monkeypatch.setattr(current, "_start", lambda: None)
    monkeypatch.setattr(current, "_wait_for_result", wait)
    monkeypatch.setattr(current, "_poll_last", lambda: None)
    monkeypatch.setattr(current, "_end", lambda: None)
    current.result()


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
def test_lost_connection_between_workers_causes_a_restart(
    run: Run, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such an error once ended the run with a traceback."""
    with pytest.raises(WorkersDisconnected) as found:
        run_failing(attempt(run), monkeypatch, RayTaskError("train", "traceback", error))
    assert (
        str(found.value)
        == f"a worker lost its connection to the others ({type(error).__name__}: {str(error).splitlines()[0]})"
    )


def test_programming_error_is_raised_unchanged(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError("mat1 and mat2 shapes cannot be multiplied")
    with pytest.raises(RayTaskError):
        run_failing(attempt(run), monkeypatch, RayTaskError("train", "gloo: Connection closed by peer", error))


def test_original_error_is_raised_instead_of_the_resulting_connection_error(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo, bug = RuntimeError("Connection closed by peer"), ValueError("mat1 and mat2 shapes cannot be multiplied")
    errors = [RayTaskError("train", "", echo), RayTaskError("train", "", bug)]

    def get(error: Exception) -> None:
        raise error

    monkeypatch.setattr(ray, "wait", lambda waiting, **_: (waiting, []))
    monkeypatch.setattr(ray, "get", get)
    current = attempt(run)
    current.state = replace(current.state, workers=RunningWorkers(results=tuple(errors)))
    with pytest.raises(RayTaskError) as found:
        run_failing(current, monkeypatch, errors[0])
    assert found.value.cause is bug


def test_node_setup_failure_gives_a_one_line_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeEnvSetupError("[Errno 28] No space left on device:\n'/tmp/ray'\n" + 9_000 * "x")
    with pytest.raises(
        ResourceError, match=r"No space left on device: '/tmp/ray' x+\); check the free disk space"
    ) as found:
        run_failing(attempt(run), monkeypatch, error)
    assert len(str(found.value)) < 600
    assert "\n" not in str(found.value)


def test_hang_is_detected_before_a_collective_call_times_out(run: Run) -> None:
    """Both timeouts default to 600 s, but work other than steps may take six times as long."""
    current = attempt(run)
    assert current.run.engine.init_timeout_seconds == current.monitor.timeout_s == DAY_S
    for rank in (0, 1):
        record_activity(current, rank, "checkpoint", 100.0)
    assert current.monitor.limit_s([0, 1]) < current.run.engine.init_timeout_seconds
    assert attempt(run, hang_s=0.0).run.engine.init_timeout_seconds == 600
    assert attempt(run, hang_s=86_400.0).run.engine.init_timeout_seconds == 6 * 86_400 + 60


# Progress


def test_attempt_starts_at_the_step_of_the_newest_checkpoint(run: Run) -> None:
    (Path(run.folder) / CHECKPOINTS / "step-000001500").mkdir(parents=True)
    assert attempt(run).step == 1500
    assert attempt(replace(run, resume="never")).step == 0


def test_heartbeat_updates_the_step_before_any_metric_is_logged(run: Run) -> None:
    current = attempt(run)
    current._handle_status(0, WorkerStatus(0, Heartbeat(5, 17, STEP), (), (), MemoryUse()))
    assert current.step == 17


# The driver process


def test_time_while_the_driver_was_suspended_is_not_silence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-Z and `fg`, the first check of the workers once ended them."""
    turns_s = iter([0.0, 1.0, 901.0, 902.0, 1300.0])
    current = attempt(run, workers=1)
    record_activity(current, 0, STEP, 0.0)
    future = object()
    current.state = replace(current.state, workers=RunningWorkers(results=(future,)))
    monkeypatch.setattr(launch.time, "monotonic", lambda: next(turns_s))
    monkeypatch.setattr(ray, "wait", lambda waiting, **_: ([], waiting))
    monkeypatch.setattr(ray, "get", lambda done: None)
    monkeypatch.setattr(current, "_poll", lambda at_work: None)
    monkeypatch.setattr(current, "_check_surroundings", lambda: None)
    silent: list[float] = []
    look: Callable[..., float] = current.monitor.silent_s
    monkeypatch.setattr(current.monitor, "silent_s", lambda *given: silent.append(look(*given)) or 0.0)
    with pytest.raises(StopIteration):
        current._wait_for_result()
    assert silent == [0.0] * 4


def test_each_slow_worker_is_reported_with_its_own_factor(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    current = attempt(run)
    actor = SimpleNamespace(log_metrics=SimpleNamespace(remote=lambda metrics: None))
    started = tuple(cast(Any, SimpleNamespace(process=f"process {rank}")) for rank in (0, 1))
    current.state = replace(current.state, workers=RunningWorkers((actor,), started))
    current._report_slow(7.0, {0: 2.0, 1: 7.0})
    assert [record.getMessage().split("take it ")[1][:3] for record in caplog.records] == ["2.0", "7.0"]
    assert issubclass(WorkersDisconnected, WorkerDied)

"""A worker process that is slower than the other is reported."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from orchestration.launch import heartbeat, ray_session
from orchestration.tracking import history
from orchestration.tracking import runs as track
from tests.orchestration.launch.test_group import once_at, run_of, start
from tests.orchestration.launch.test_survive import trainers
from tests.training.held_out import with_test_split
from training.specs import Phase

STOPPED_S, RUNS_S = 0.3, 0.03


@contextmanager
def slow_processes() -> Iterator[list[psutil.Process]]:
    """Inside the block, reduce the speed of each listed worker to a tenth, so that it is slower even on a busy
    machine."""
    found: list[psutil.Process] = []
    ended = threading.Event()

    def slow() -> None:
        while not ended.wait(RUNS_S):
            for each in found:
                try:
                    each.suspend()
                    ended.wait(STOPPED_S)
                    each.resume()
                except psutil.Error:  # the process has ended
                    return

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_slower_worker_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 3.0)
    corpus, place = with_test_split(tmp_path / "corpus"), track.tracking_store(tmp_path / "out")
    run = run_of(
        corpus, tmp_path / "run", phases=(Phase(seq_length=48, global_batch_size=64, steps=200),), eval_every=0
    )
    began_s = time.monotonic()
    with ray_session(cpus=2), slow_processes() as slow:
        assert start(run, place, on_progress=once_at(5, lambda: slow.append(trainers()[0]))).finished
    (pid,) = [each.pid for each in slow]
    messages = [record.getMessage() for record in caplog.records if "is slow" in record.getMessage()]
    assert messages, f"no slow worker was reported in {time.monotonic() - began_s:.0f} s"
    assert all(f"process {pid} on" in each for each in messages), messages
    found = history(tmp_path / "run")["perf/slowest_worker_ratio"]
    assert max(value for _, value in found) > heartbeat.SLOWER
    assert all(record.levelno == logging.WARNING for record in caplog.records if "is slow" in record.getMessage())

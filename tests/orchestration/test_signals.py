"""Signals that raise exceptions, and signals that are recorded."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestration import signals
from orchestration.signals import Stopped, signals_raise, stop_signals
from preprocessing.errors import Preempted


def send(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, Preempted), (signal.SIGINT, KeyboardInterrupt)])
def test_signal_is_not_suppressed_and_names_the_activity(number: int, error: type[BaseException]) -> None:
    before = signal.getsignal(number)

    def work() -> None:
        with contextlib.suppress(Exception):  # as a library does
            send(number)
        pytest.fail("the signal did not interrupt the work")

    message = "stopped while reading"
    with pytest.raises(error, match=f"{message}; repeat the command to resume"), signals_raise(lambda: message):
        work()
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, Preempted), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_during_a_beam_function_ends_the_job_in_one_line(
    number: int, error: type[BaseException], tmp_path: Path
) -> None:
    """Beam turned the exception of the signal into a RuntimeError: a traceback and exit code 1."""
    from pipeline.runners import beam, pipeline

    with (
        pytest.raises(error, match=r"^stopped in text; repeat the command to resume$"),
        signals_raise(lambda: "stopped in text"),
        pipeline(tmp_path, 0) as graph,
    ):
        graph | beam.Create([number]) | beam.Map(send)


def test_further_signals_do_not_interrupt_the_cleanup(monkeypatch: pytest.MonkeyPatch) -> None:
    cleared = []

    def work() -> None:
        try:
            send(signal.SIGTERM)
        finally:
            send(signal.SIGTERM)
            send(signal.SIGINT)
            cleared.append(True)

    with pytest.raises(Preempted), signals_raise():
        work()
    assert cleared == [True]
    monkeypatch.setattr(signals, "AGAIN_S", 0.0)  # the cleanup counts as hanging, so the next signal raises
    with pytest.raises(Preempted), signals_raise():
        work()
    assert cleared == [True]


def test_first_signal_is_recorded_and_second_raises_at_once() -> None:
    with stop_signals() as asked:
        send(signal.SIGTERM)
        assert asked.signal == signal.SIGTERM
    assert isinstance(asked.make_exception("x"), Preempted)

    def twice() -> None:
        send(signal.SIGINT)
        send(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt, match="at once, without a checkpoint"), stop_signals():
        twice()


def test_inner_recording_replaces_outer_raising() -> None:
    with signals_raise(), stop_signals() as asked:
        send(signal.SIGTERM)
        assert asked.signal
    assert issubclass(Stopped, KeyboardInterrupt)


def test_outer_cleanup_after_a_stop_is_not_interrupted() -> None:
    """A second SIGTERM while Ray stopped once left Ray's directory behind."""
    cleared = []

    def work() -> None:
        try:
            with stop_signals() as asked:
                send(signal.SIGTERM)
                raise asked.make_exception("before its first step")
        finally:
            send(signal.SIGTERM)
            cleared.append(True)

    with pytest.raises(Preempted, match="before its first step"), signals_raise():
        work()
    assert cleared == [True]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_stopped_command_prints_one_line(number: int, code: int, tmp_path: Path) -> None:
    """`sesame corpus` once exited with SIGTERM's own status, and its unfinished files stayed."""
    program = (
        "import sys, time\nfrom orchestration import cli\nfrom orchestration.cli.verbs import check\n"
        "def slow(*_, **__):\n    print('here', flush=True)\n    time.sleep(60)\n"
        "check.__globals__['open_flags'] = slow\nsys.exit(cli.main(['check', 'bert_base']))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], cwd=Path(signals.__file__).parents[1], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "here\n"
    child.send_signal(number)
    _, message = child.communicate(timeout=60)
    assert (child.returncode, message) == (code, "sesame: stopped; repeat the command to resume\n")

"""Which process has a number: by the kernel's ticks since the boot, and no clock of the wall."""

import os
import signal
import subprocess
import sys
import time

import pytest

from preprocessing.processes import began, is_stopped

WAITS = [sys.executable, "-c", "input()"]


def test_a_process_is_known_whatever_the_clock_of_the_wall_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time at which one began was told by the wall's clock, which is set: an owner was called gone."""
    first = began(os.getpid())
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert began(os.getpid()) == first != ""


def test_who_is_there_has_begun_and_who_has_ended_is_none() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as one, subprocess.Popen(WAITS, stdin=subprocess.PIPE) as other:
        assert "" not in (began(one.pid), began(other.pid))
        one.kill()
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)  # a zombie: nobody has waited for it
        assert began(one.pid) == ""
        other.kill()
    assert began(one.pid) == ""


def test_a_process_that_is_stopped_is_there() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as one:
        assert not is_stopped(one.pid)
        one.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, one.pid, os.WSTOPPED | os.WNOWAIT)
        assert is_stopped(one.pid)
        assert began(one.pid) != ""
        one.kill()

"""Processes are identified by kernel ticks since boot, not by the system clock."""

import os
import signal
import subprocess
import sys
import time

import pytest

from preprocessing.processes import is_stopped, read_start_id

WAITS = [sys.executable, "-c", "input()"]


def test_process_identity_is_independent_of_the_system_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start time used to come from the system clock, which can be adjusted; a live owner then looked dead."""
    first = read_start_id(os.getpid())
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert read_start_id(os.getpid()) == first != ""


def test_a_live_process_has_a_start_time_and_a_dead_one_has_none() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as one, subprocess.Popen(WAITS, stdin=subprocess.PIPE) as other:
        assert "" not in (read_start_id(one.pid), read_start_id(other.pid))
        one.kill()
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)  # a zombie: its parent has not waited for it
        assert read_start_id(one.pid) == ""
        other.kill()
    assert read_start_id(one.pid) == ""


def test_a_stopped_process_counts_as_alive() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as one:
        assert not is_stopped(one.pid)
        one.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, one.pid, os.WSTOPPED | os.WNOWAIT)
        assert is_stopped(one.pid)
        assert read_start_id(one.pid) != ""
        one.kill()

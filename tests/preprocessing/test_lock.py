"""A folder has one writer, and a second one is told who that is."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from preprocessing import lock
from preprocessing.errors import BadInput, ResourceError
from preprocessing.lock import JOB, OWNER, has_locks, hold_lock, is_abandoned, is_held, kill_abandoned
from preprocessing.processes import began, is_stopped

HOLD = (
    "import sys, time; from pathlib import Path; from preprocessing.lock import hold_lock\n"
    "with hold_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
)


def test_a_second_process_is_told_who_holds_the_folder_and_gets_it_when_that_is_killed(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, cwd=os.getcwd())
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        refused = rf"process {other.pid} on .* \(since .*\) is writing here.*--output-dir"
        with pytest.raises(ResourceError, match=refused), hold_lock(tmp_path):
            pytest.fail("held by two")
    finally:
        other.kill()
        other.wait()
        assert other.stdout is not None
        other.stdout.close()
    with hold_lock(tmp_path):
        assert json.loads((tmp_path / OWNER).read_bytes())["pid"] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_a_disk_without_locks_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with hold_lock(tmp_path / "run"):
        assert "does not support locks (No locks available); do not start a second job here" in caplog.text


def test_a_lock_that_is_a_link_is_refused_and_the_file_behind_it_stays(tmp_path: Path) -> None:
    """It was truncated: a link in a folder that others may write to names any file of ours."""
    (tmp_path / "mine").write_text("kept")
    (tmp_path / OWNER).symlink_to(tmp_path / "mine")
    with pytest.raises(ResourceError, match="is a symbolic link"), hold_lock(tmp_path):
        pytest.fail("held through a link")
    assert (tmp_path / "mine").read_text() == "kept"


WORKER = """
import sys, time
from pathlib import Path
from preprocessing.lock import register_process
register_process(Path(sys.argv[1]))
print("there", flush=True)
time.sleep(600)
"""


def test_a_folder_is_left_when_the_last_process_has_ended_that_takes_part(tmp_path: Path) -> None:
    assert is_abandoned(tmp_path)
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)], stdout=subprocess.PIPE) for _ in "ab"]
    try:
        for worker in workers:
            assert worker.stdout
            worker.stdout.readline()
        left = [is_abandoned(tmp_path)]
        for worker in workers:
            worker.kill()
            worker.communicate()
            left.append(is_abandoned(tmp_path))
    finally:
        for worker in workers:
            worker.kill()
    assert left == [False, False, True]
    assert not list(tmp_path.iterdir())


def test_who_takes_part_while_the_file_is_removed_takes_part_in_the_one_that_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`is_abandoned` removed it between open and flock, and a worker held the lock of a file that nobody could find."""
    flock, calls = lock.fcntl.flock, list[int]()

    def removed_meanwhile(handle: int, how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            (tmp_path / lock.WORKERS).unlink()
        flock(handle, how)

    with monkeypatch.context() as patched:
        patched.setattr(lock.fcntl, "flock", removed_meanwhile)
        lock.register_process(tmp_path)  # open until this process ends
    assert len(calls) == 2
    assert not is_abandoned(tmp_path)
    calls.clear()
    (tmp_path / lock.WORKERS).rename(tmp_path / "of this process")
    with monkeypatch.context() as patched:
        patched.setattr(lock.fcntl, "flock", removed_meanwhile)
        (tmp_path / lock.WORKERS).touch()
        assert is_abandoned(tmp_path)


@contextmanager
def holder(folder: Path, how: str = HOLD) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock of a folder, or takes part in the work on it."""
    process = subprocess.Popen([sys.executable, "-c", how, str(folder)], stdout=subprocess.PIPE, cwd=os.getcwd())
    try:
        assert process.stdout
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_lock_of_a_process_that_was_killed_and_not_waited_for_is_free(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert (is_held(tmp_path), began(other.pid)) == (False, "")
        with hold_lock(tmp_path):
            assert json.loads((tmp_path / OWNER).read_bytes())["pid"] == os.getpid()


def test_an_owner_that_is_stopped_is_named_as_such(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        other.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
        assert is_stopped(other.pid)
        with (
            pytest.raises(ResourceError, match=rf"stopped: `kill -CONT {other.pid}` resumes it"),
            hold_lock(tmp_path),
        ):
            pytest.fail("held by two")


def test_a_name_that_belongs_to_a_later_process_is_not_told(tmp_path: Path) -> None:
    """The lock's file says who held it last; its number has been given again."""
    with holder(tmp_path) as other:
        who = json.loads((tmp_path / OWNER).read_bytes())
        (tmp_path / OWNER).write_text(json.dumps(who | {"pid": os.getpid()}))
        with pytest.raises(ResourceError, match="another process is writing here"), hold_lock(tmp_path):
            pytest.fail("held by two")
        assert other.poll() is None


@pytest.mark.parametrize("name", [OWNER, JOB])
def test_whether_a_folder_is_held_is_asked_of_the_kernel(tmp_path: Path, name: str) -> None:
    assert is_held(tmp_path) is False
    (tmp_path / name).write_text(json.dumps({"pid": os.getpid()}))  # a name alone says nothing
    assert is_held(tmp_path) is False
    with hold_lock(tmp_path, name):
        assert is_held(tmp_path) is True
    assert is_held(tmp_path) is False
    assert is_held(tmp_path / "absent") is None


def test_whether_a_folder_is_held_is_not_known_on_a_disk_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    assert (has_locks(tmp_path), is_held(tmp_path)) == (False, None)
    with hold_lock(tmp_path):
        assert is_held(tmp_path) is None


def test_a_disk_without_locks_names_who_seems_to_write_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    with holder(tmp_path) as other:
        monkeypatch.setattr(lock.fcntl, "flock", refuse)
        with hold_lock(tmp_path):
            assert f"do not start a second job here: process {other.pid} on" in caplog.text


def test_looking_whether_a_folder_is_held_keeps_nobody_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look itself has the lock for a moment."""
    flock, looks = lock.fcntl.flock, iter([True, True, False])

    def looked_at(handle: int, how: int) -> None:
        if next(looks, False):
            raise BlockingIOError
        flock(handle, how)

    monkeypatch.setattr(lock.fcntl, "flock", looked_at)
    with hold_lock(tmp_path):
        assert (tmp_path / OWNER).is_file()


def test_who_takes_part_is_ended_though_it_is_stopped(tmp_path: Path) -> None:
    with (
        holder(tmp_path, WORKER) as worker,
        holder(tmp_path / "..", "import time; print(1, flush=True); time.sleep(60)") as stranger,
    ):
        worker.send_signal(signal.SIGSTOP)
        assert not is_abandoned(tmp_path)
        assert kill_abandoned(tmp_path) == [worker.pid]
        assert worker.wait(10) == -signal.SIGKILL
        assert is_abandoned(tmp_path)
        assert kill_abandoned(tmp_path) == []
        assert stranger.poll() is None


@pytest.mark.parametrize(
    "error", [PermissionError(errno.EACCES, "Permission denied"), OSError(errno.EROFS, "read-only")]
)
def test_a_folder_that_cannot_be_written_to_is_one_line(
    tmp_path: Path, error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object, **keys: object) -> None:
        raise error

    monkeypatch.setattr(lock.os, "open", refuse)
    with pytest.raises(BadInput, match=rf"cannot write to it \({error.strerror}\)"), hold_lock(tmp_path):
        pytest.fail("held")


def test_a_full_disk_does_not_take_the_lock_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lock.os, "pwrite", full)
    with hold_lock(tmp_path):
        assert is_held(tmp_path)


@pytest.mark.parametrize(
    "name", ["", "[]", "{}", "[" * 100_000, '{"pid": 1e999, "host": "h"}', '{"pid": "x", "host": 1}']
)
def test_a_name_that_is_damaged_is_no_traceback(tmp_path: Path, name: str) -> None:
    (tmp_path / OWNER).write_text(name)
    assert lock._named_owner(tmp_path / OWNER) == ""

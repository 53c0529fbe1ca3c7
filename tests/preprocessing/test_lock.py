"""A directory has one writer, and a second writer gets an error that names the first."""

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
from preprocessing.processes import is_stopped, read_start_id

HOLD = (
    "import sys, time; from pathlib import Path; from preprocessing.lock import hold_lock\n"
    "with hold_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
)


def test_a_second_process_is_refused_until_the_lock_holder_is_killed(tmp_path: Path) -> None:
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


def test_a_file_system_without_locks_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with hold_lock(tmp_path / "run"):
        assert "does not support locks (No locks available); do not start a second job here" in caplog.text


def test_a_symlink_as_lock_is_refused_and_its_target_is_unchanged(tmp_path: Path) -> None:
    """The linked file used to be truncated: in a shared directory, a link can point to any file of the user."""
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


def test_a_directory_is_abandoned_after_its_last_worker_has_ended(tmp_path: Path) -> None:
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


def test_a_worker_registers_again_if_the_file_is_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`is_abandoned` used to remove the file between open and flock, so a worker locked a deleted file."""
    flock, calls = lock.fcntl.flock, list[int]()

    def flock_after_removal(handle: int, how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            (tmp_path / lock.WORKERS).unlink()
        flock(handle, how)

    with monkeypatch.context() as patched:
        patched.setattr(lock.fcntl, "flock", flock_after_removal)
        lock.register_process(tmp_path)  # stays open until this process ends
    assert len(calls) == 2
    assert not is_abandoned(tmp_path)
    calls.clear()
    (tmp_path / lock.WORKERS).rename(tmp_path / "of this process")
    with monkeypatch.context() as patched:
        patched.setattr(lock.fcntl, "flock", flock_after_removal)
        (tmp_path / lock.WORKERS).touch()
        assert is_abandoned(tmp_path)


@contextmanager
def other_process(folder: Path, how: str = HOLD) -> Iterator[subprocess.Popen[bytes]]:
    """Run another process that holds the lock of a directory or is registered as a worker there."""
    process = subprocess.Popen([sys.executable, "-c", how, str(folder)], stdout=subprocess.PIPE, cwd=os.getcwd())
    try:
        assert process.stdout
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_lock_of_a_zombie_process_is_free(tmp_path: Path) -> None:
    with other_process(tmp_path) as other:
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert (is_held(tmp_path), read_start_id(other.pid)) == (False, "")
        with hold_lock(tmp_path):
            assert json.loads((tmp_path / OWNER).read_bytes())["pid"] == os.getpid()


def test_a_stopped_lock_holder_is_reported_as_stopped(tmp_path: Path) -> None:
    with other_process(tmp_path) as other:
        other.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
        assert is_stopped(other.pid)
        with (
            pytest.raises(ResourceError, match=rf"stopped: `kill -CONT {other.pid}` resumes it"),
            hold_lock(tmp_path),
        ):
            pytest.fail("held by two")


def test_a_reused_process_id_is_not_reported_as_the_owner(tmp_path: Path) -> None:
    """The lock file names its last holder, but the process ID now belongs to another process."""
    with other_process(tmp_path) as other:
        who = json.loads((tmp_path / OWNER).read_bytes())
        (tmp_path / OWNER).write_text(json.dumps(who | {"pid": os.getpid()}))
        with pytest.raises(ResourceError, match="another process is writing here"), hold_lock(tmp_path):
            pytest.fail("held by two")
        assert other.poll() is None


@pytest.mark.parametrize("name", [OWNER, JOB])
def test_is_held_asks_the_kernel_and_ignores_names(tmp_path: Path, name: str) -> None:
    assert is_held(tmp_path) is False
    (tmp_path / name).write_text(json.dumps({"pid": os.getpid()}))  # a name without a lock means nothing
    assert is_held(tmp_path) is False
    with hold_lock(tmp_path, name):
        assert is_held(tmp_path) is True
    assert is_held(tmp_path) is False
    assert is_held(tmp_path / "absent") is None


def test_is_held_is_none_on_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    assert (has_locks(tmp_path), is_held(tmp_path)) == (False, None)
    with hold_lock(tmp_path):
        assert is_held(tmp_path) is None


def test_a_file_system_without_locks_names_the_likely_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    with other_process(tmp_path) as other:
        monkeypatch.setattr(lock.fcntl, "flock", refuse)
        with hold_lock(tmp_path):
            assert f"do not start a second job here: process {other.pid} on" in caplog.text


def test_a_short_query_of_the_lock_does_not_block_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query itself holds the lock for a moment."""
    flock, looks = lock.fcntl.flock, iter([True, True, False])

    def looked_at(handle: int, how: int) -> None:
        if next(looks, False):
            raise BlockingIOError
        flock(handle, how)

    monkeypatch.setattr(lock.fcntl, "flock", looked_at)
    with hold_lock(tmp_path):
        assert (tmp_path / OWNER).is_file()


def test_kill_abandoned_kills_stopped_workers(tmp_path: Path) -> None:
    with (
        other_process(tmp_path, WORKER) as worker,
        other_process(tmp_path / "..", "import time; print(1, flush=True); time.sleep(60)") as stranger,
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
def test_an_unwritable_directory_is_a_one_line_error(
    tmp_path: Path, error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object, **keys: object) -> None:
        raise error

    monkeypatch.setattr(lock.os, "open", refuse)
    with pytest.raises(BadInput, match=rf"cannot write to it \({error.strerror}\)"), hold_lock(tmp_path):
        pytest.fail("held")


def test_a_full_disk_does_not_release_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(lock.os, "pwrite", full)
    with hold_lock(tmp_path):
        assert is_held(tmp_path)


@pytest.mark.parametrize(
    "name", ["", "[]", "{}", "[" * 100_000, '{"pid": 1e999, "host": "h"}', '{"pid": "x", "host": 1}']
)
def test_a_damaged_owner_file_gives_no_name_and_no_traceback(tmp_path: Path, name: str) -> None:
    (tmp_path / OWNER).write_text(name)
    assert lock._read_owner(tmp_path / OWNER) == ""

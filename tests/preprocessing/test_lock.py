"""A folder has one writer, and a second one is told who that is."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from preprocessing import lock
from preprocessing.errors import ResourceError
from preprocessing.lock import OWNER, held, is_left

HOLD = (
    "import sys, time; from pathlib import Path; from preprocessing.lock import held\n"
    "with held(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
)


def test_a_second_process_is_told_who_holds_the_folder_and_gets_it_when_that_is_killed(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, cwd=os.getcwd())
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        refused = rf"process {other.pid} on .* \(since .*\) is writing here.*--out"
        with pytest.raises(ResourceError, match=refused), held(tmp_path):
            pytest.fail("held by two")
    finally:
        other.kill()
        other.wait()
        assert other.stdout is not None
        other.stdout.close()
    with held(tmp_path):
        assert json.loads((tmp_path / OWNER).read_bytes())["pid"] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_a_disk_without_locks_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with held(tmp_path / "run"):
        assert "has no locks (No locks available); start no second job here" in caplog.text


def test_a_lock_that_is_a_link_is_refused_and_the_file_behind_it_stays(tmp_path: Path) -> None:
    """It was truncated: a link in a folder that others may write to names any file of ours."""
    (tmp_path / "mine").write_text("kept")
    (tmp_path / OWNER).symlink_to(tmp_path / "mine")
    with pytest.raises(ResourceError, match="is a link"), held(tmp_path):
        pytest.fail("held through a link")
    assert (tmp_path / "mine").read_text() == "kept"


WORKER = """
import sys, time
from pathlib import Path
from preprocessing.lock import take_part
take_part(Path(sys.argv[1]))
print("there", flush=True)
time.sleep(600)
"""


def test_a_folder_is_left_when_the_last_process_has_ended_that_takes_part(tmp_path: Path) -> None:
    assert is_left(tmp_path)
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)], stdout=subprocess.PIPE) for _ in "ab"]
    try:
        for worker in workers:
            assert worker.stdout
            worker.stdout.readline()
        left = [is_left(tmp_path)]
        for worker in workers:
            worker.kill()
            worker.communicate()
            left.append(is_left(tmp_path))
    finally:
        for worker in workers:
            worker.kill()
    assert left == [False, False, True]
    assert not list(tmp_path.iterdir())


def test_who_takes_part_while_the_file_is_removed_takes_part_in_the_one_that_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`is_left` removed it between open and flock, and a worker held the lock of a file that nobody could find."""
    flock, calls = lock.fcntl.flock, list[int]()

    def removed_meanwhile(handle: int, how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            (tmp_path / lock.WORKERS).unlink()
        flock(handle, how)

    with monkeypatch.context() as patched:
        patched.setattr(lock.fcntl, "flock", removed_meanwhile)
        lock.take_part(tmp_path)  # open until this process ends
    assert len(calls) == 2
    assert not is_left(tmp_path)
    calls.clear()
    (tmp_path / lock.WORKERS).rename(tmp_path / "of this process")
    with monkeypatch.context() as patched:
        patched.setattr(lock.fcntl, "flock", removed_meanwhile)
        (tmp_path / lock.WORKERS).touch()
        assert is_left(tmp_path)

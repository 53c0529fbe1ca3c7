"""Locks that allow one writer per directory: a kernel lock on a file that names its owner.

Only the process with the lock works in the directory. Process IDs and times in files do not show its owner.

The kernel releases the lock (flock(2)) when its process ends in any way, so no lock is ever stale. On a shared disk,
locks work between machines where flock does: NFS since Linux 2.6.12 with a lock daemon, Lustre mounted with `flock`.
"""

import errno
import fcntl
import json
import logging
import os
import platform
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from preprocessing.errors import BadInput, ResourceError
from preprocessing.files import parse_json
from preprocessing.folders import make_directory
from preprocessing.processes import is_stopped, read_start_id

log = logging.getLogger(__name__)

OWNER: Final = ".owner.json"
JOB: Final = ".job.json"  # lock of a job that fills the directory in stages; each stage also takes the lock OWNER
WORKERS: Final = ".workers.lock"  # locked by worker processes, which may outlive the owner
LOOKED_S: Final = 0.1  # retry for this time, because `is_held` of another process takes the lock for a moment
REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)  # errors of a directory without write permission
NO_LOCKS: Final = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)  # errors of a disk without locks


@contextmanager
def hold_lock(folder: Path, name: str = OWNER) -> Iterator[None]:
    """Hold the lock of a directory, which is created if missing.

    Raises ResourceError at once if another process has the lock, and BadInput if the directory cannot be created or
    written to. A disk that does not support locks causes a warning.
    """
    try:
        make_directory(folder)
        handle = _lock(folder / name)
    except (FileExistsError, NotADirectoryError):
        raise BadInput(f"{folder}: is a file or below a file; give a directory to write to") from None
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        raise BadInput(f"{folder}: cannot write to it ({error.strerror}); give a writable directory") from None
    path = folder / name
    if handle is None:
        raise ResourceError(
            f"{folder}: {_owner(path)} is writing here; wait for it, or write elsewhere with --output-dir"
        )
    try:
        since, pid = datetime.now().astimezone().isoformat(timespec="seconds"), os.getpid()
        who = {"pid": pid, "host": platform.node(), "since": since, "began": read_start_id(pid)}
        with suppress(OSError):  # the lock works without a name, for example on a full disk
            os.ftruncate(handle, 0)  # remove the name that a killed process left
            os.pwrite(handle, json.dumps(who).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def is_held(folder: Path) -> bool | None:
    """Whether a process, possibly this one, holds the lock of a directory.

    Returns None if that is unknown because the directory is not on this machine or its disk does not support locks.
    """
    if not os.path.isdir(folder):  # also False if this user may not read the parent directory
        return None
    for name in (OWNER, JOB):
        try:
            handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return None
        finally:
            os.close(handle)
    return False if has_locks(folder) else None


def has_locks(folder: Path) -> bool:
    """Whether the disk of a directory supports locks; False if the directory is missing."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def register_process(folder: Path) -> None:
    """Register this process as working in a directory until it ends, even if it outlives its parent."""
    while True:
        handle = os.open(folder / WORKERS, os.O_RDWR | os.O_CREAT, 0o644)  # stays open until the process ends
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            return
        if is_same_file(handle, folder / WORKERS):
            return
        os.close(handle)  # `is_abandoned` has just removed the file


def is_abandoned(folder: Path) -> bool:
    """Whether no registered process works in a directory any more."""
    path = folder / WORKERS
    while True:
        try:
            handle = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_same_file(handle, path):
                path.unlink()
                return True
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            return True
        finally:
            os.close(handle)


def kill_abandoned(folder: Path) -> list[int]:
    """Kill the processes of this machine that work in a directory whose owner has ended, and return their PIDs.

    SIGKILL is necessary, because they may be stopped or may wait for the owner.
    """
    path = folder / WORKERS
    try:
        status = path.stat()
    except OSError:
        return []
    ended = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        if pid != os.getpid() and _has_open(pid, status):  # registered, or a child of a registered process
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                ended.append(pid)
    return ended


def _has_open(pid: int, status: os.stat_result) -> bool:
    """Whether a process has the file with this status open."""
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{number}"), status):
                    return True
    return False


def is_same_file(handle: int, path: Path) -> bool:
    """Whether an open file is still the file at this path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(handle))
    return False


def _lock(path: Path) -> int | None:
    """An open file with its lock, or None if another process has the lock."""
    until_s = time.monotonic() + LOOKED_S
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise ResourceError(f"{path}: is a symbolic link, expected a regular file; remove it") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_same_file(handle, path):
                return handle
        except BlockingIOError:
            if time.monotonic() > until_s:
                os.close(handle)
                return None
            time.sleep(0.01)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(handle)
                raise
            other = _read_owner(path)
            log.warning(
                "%s: this disk does not support locks (%s); do not start a second job here%s",
                path.parent, error.strerror, f": {other} may still be writing here" if other else "",
            )  # fmt: skip
            return handle
        os.close(handle)  # the previous owner has just removed the file


def _owner(path: Path) -> str:
    """The owner of a lock, as text. The file is read again as long as it names no running process."""
    for _ in range(20):
        if name := _read_owner(path):
            return name
        time.sleep(0.05)
    return "another process"


def _read_owner(path: Path) -> str:
    """The process that a lock file names, as text; "" if it names none, or one of this machine that has ended."""
    try:
        who = parse_json(path.read_bytes())
        pid, host, state = int(who["pid"]), who["host"], ""
        if host == platform.node():
            if read_start_id(pid) != who.get("began", read_start_id(pid)) or not read_start_id(pid):
                return ""
            state = f", stopped: `kill -CONT {pid}` resumes it, `kill -9 {pid}` ends it" if is_stopped(pid) else ""
        return f"process {pid} on {host} (since {who['since']}{state})"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):  # damaged
        return ""

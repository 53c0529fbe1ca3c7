"""One writer of a folder: a lock of the kernel's on a file that names who holds it.

Who holds the lock is at work in the folder, and nobody else is, whatever names and times are written anywhere.

flock(2): the kernel drops the lock however its process ends, so that none is ever stale. On a shared disk it holds
between machines as far as flock does there: NFS since Linux 2.6.12 and with a lock daemon, Lustre mounted with `flock`.
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
from preprocessing.processes import began, is_stopped

log = logging.getLogger(__name__)

OWNER: Final = ".owner.json"
JOB: Final = ".job.json"  # the same of a job that makes the folder in stages, each of which holds it for itself
WORKERS: Final = ".workers.lock"  # beside it, while processes of the owner's are at work that may outlive it
LOOKED_S: Final = 0.1  # for others to look whether a lock is held (`is_held`)
REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)  # what a folder that is not ours answers
NO_LOCKS: Final = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)  # what a disk without them answers


@contextmanager
def hold_lock(folder: Path, name: str = OWNER) -> Iterator[None]:
    """Hold the lock of a folder, which is made where missing; ResourceError at once where another process holds it.

    A disk that knows no locks costs a warning. BadInput where the folder cannot be made or written to.
    """
    try:
        make_directory(folder)
        handle = _lock(folder / name)
    except (FileExistsError, NotADirectoryError):
        raise BadInput(f"{folder}: is a file, or below one; give a folder to write to") from None
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        raise BadInput(f"{folder}: cannot be written to ({error.strerror}); give a folder that can be") from None
    path = folder / name
    if handle is None:
        raise ResourceError(
            f"{folder}: {_owner(path)} is writing here; wait for it, or write elsewhere with --output-dir"
        )
    try:
        since, pid = datetime.now().astimezone().isoformat(timespec="seconds"), os.getpid()
        who = {"pid": pid, "host": platform.node(), "since": since, "began": began(pid)}
        with suppress(OSError):  # the lock holds without a name, on a full disk too
            os.ftruncate(handle, 0)  # a killed process leaves its name
            os.pwrite(handle, json.dumps(who).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def is_held(folder: Path) -> bool | None:
    """Whether a process holds the lock of a folder, this one too; None where that is not known, as the folder is not
    here, or its disk has no locks."""
    if not os.path.isdir(folder):  # says no as well where we may not look
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
    """Whether the disk of a folder knows locks; False too where the folder is not here."""
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
    """Be known as at work in a folder as long as this process lives, whatever becomes of the one that started it."""
    while True:
        handle = os.open(folder / WORKERS, os.O_RDWR | os.O_CREAT, 0o644)  # open until the process ends
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            return
        if _is_named(handle, folder / WORKERS):
            return
        os.close(handle)  # `is_abandoned` has just removed the file


def is_abandoned(folder: Path) -> bool:
    """Whether no process takes part in the work on a folder any more."""
    path = folder / WORKERS
    while True:
        try:
            handle = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(handle, path):
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
    """SIGKILL for the processes of this machine that take part in the work on a folder, whose owner is gone: they may
    be stopped, or wait for it. Their numbers."""
    path = folder / WORKERS
    try:
        status = path.stat()
    except OSError:
        return []
    ended = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        if pid != os.getpid() and _has_open(pid, status):  # who has it open takes part, or is a child of who does
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                ended.append(pid)
    return ended


def _has_open(pid: int, status: os.stat_result) -> bool:
    """Whether a process has this very file open."""
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{number}"), status):
                    return True
    return False


def _is_named(handle: int, path: Path) -> bool:
    """Whether an open file is still the one of this name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(handle))
    return False


def _lock(path: Path) -> int | None:
    """A handle on a file with its lock, or None where another process has that."""
    until_s = time.monotonic() + LOOKED_S
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise ResourceError(f"{path} is a link, and Sesame writes to a file of its own there; remove it") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(handle, path):
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
            other = _named_owner(path)
            log.warning(
                "%s: this disk has no locks (%s); start no second job here%s",
                path.parent, error.strerror, f": {other} says that it is writing here" if other else "",
            )  # fmt: skip
            return handle
        os.close(handle)  # the owner before has just removed the file, or somebody has looked whether it is held


def _owner(path: Path) -> str:
    """The owner of a lock, in words; read again where no name is written yet, or that of a process that has ended."""
    for _ in range(20):
        if name := _named_owner(path):
            return name
        time.sleep(0.05)
    return "another process"


def _named_owner(path: Path) -> str:
    """The process that a file of a lock names, in words; "" where there is no name in it, or that of a process of this
    machine that has ended."""
    try:
        who = parse_json(path.read_bytes())
        pid, host, state = int(who["pid"]), who["host"], ""
        if host == platform.node():
            if began(pid) != who.get("began", began(pid)) or not began(pid):
                return ""
            state = f", stopped: `kill -CONT {pid}` has it go on, `kill -9 {pid}` ends it" if is_stopped(pid) else ""
        return f"process {pid} on {host} (since {who['since']}{state})"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):  # damaged
        return ""

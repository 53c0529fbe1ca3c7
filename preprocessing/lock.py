"""One writer of a folder: a lock of the kernel's on a file that names who holds it.

flock(2): the kernel drops the lock however its process ends, so that none is ever stale. On a shared disk it holds
between machines as far as flock does there: NFS since Linux 2.6.12 and with a lock daemon, Lustre mounted with `flock`.
"""

import errno
import fcntl
import json
import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

from preprocessing.errors import ResourceError

log = logging.getLogger(__name__)

OWNER: Final = ".owner.json"
WORKERS: Final = ".workers.lock"  # beside it, while processes of the owner's are at work that may outlive it
NO_LOCKS: Final = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)  # what a disk without them answers


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is made where missing; ResourceError at once where another process holds it.

    A disk that knows no locks costs a warning.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / OWNER
    if (handle := _lock(path)) is None:
        raise ResourceError(f"{folder}: {_owner(path)} is writing here; wait for it, or write elsewhere with --out")
    try:
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        who = {"pid": os.getpid(), "host": platform.node(), "since": since}
        os.ftruncate(handle, 0)  # a killed process leaves its name
        os.pwrite(handle, json.dumps(who).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def take_part(folder: Path) -> None:
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
        os.close(handle)  # `is_left` has just removed the file


def is_left(folder: Path) -> bool:
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


def _is_named(handle: int, path: Path) -> bool:
    """Whether an open file is still the one of this name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(handle))
    return False


def _lock(path: Path) -> int | None:
    """A handle on a file with its lock, or None where another process has that."""
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
            os.close(handle)
            return None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(handle)
                raise
            log.warning("%s: this disk has no locks (%s); start no second job here", path.parent, error.strerror)
            return handle
        os.close(handle)  # the owner before has just removed the file


def _owner(path: Path) -> str:
    """The owner of a lock, in words; read again where no name is written yet, or that of a process that has ended."""
    for _ in range(20):
        try:
            who = json.loads(path.read_bytes())
            if who["host"] != platform.node() or Path("/proc", str(who["pid"])).exists():
                return f"process {who['pid']} on {who['host']} (since {who['since']})"
        except (OSError, ValueError, KeyError, TypeError):
            pass
        time.sleep(0.05)
    return "another process"

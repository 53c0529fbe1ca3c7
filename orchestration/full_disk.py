"""Describes errors of a full disk in one line, as each library words them differently."""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from preprocessing.errors import BadInput, SesameError

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MESSAGE: Final = re.compile(  # messages of Rust (safetensors), Python and SQLite
    r"os error (28|122|27)\b|No space left on device|Disk quota exceeded|File too large|database or disk is full"
)
WRITE_FAILED: Final = re.compile(  # messages of torch, which do not contain the reason
    r"PytorchStreamWriter failed|unexpected pos \d+ vs \d+|file write failed"
)
TOO_LARGE: Final = re.compile(r"os error 27\b|File too large")
SHARED: Final = "</torch_"  # names of torch's files in SHM, through which processes share tensors
SHM: Final = Path("/dev/shm")
AGAIN: Final = "free some space, and repeat the command"
RESUME: Final = f"{AGAIN} to resume from the newest checkpoint"
LITTLE: Final = 64 << 20  # bytes; if less is free, a failed write of torch means that the disk is full


@contextmanager
def explain_full_disk(folder: Path, activity: Callable[[], str], remedy: str = RESUME) -> Iterator[None]:
    """Inside the block, the error of a full disk becomes BadInput.

    The message names the file system of `folder`, or of its nearest existing parent, and contains `activity()`.
    """
    try:
        yield
    except SesameError:
        raise
    except Exception as error:
        there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.is_dir())
        if is_full(error, there):
            raise BadInput(f"{folder}: {describe_full_disk(there, activity(), error)}; {remedy}") from error
        raise


def describe(error: BaseException) -> str:
    """The full file system that caused an error of a command, in one line; else ""."""
    named = [Path(name) for one in _causes(error) if isinstance(name := getattr(one, "filename", None), str)]
    paths = (*(named[0].absolute().parents if named else ()), Path.cwd())
    folder = next(path for path in paths if path.is_dir())
    return f"{describe_full_disk(folder, '', error)}; {AGAIN}" if is_full(error, folder) else ""


def is_full(error: BaseException, folder: Path) -> bool:
    """Whether an error or one of its causes says that a disk is full."""
    for one in _causes(error):
        if isinstance(one, OSError) and one.errno in FULL:
            return True
        if MESSAGE.search(str(one)) or (WRITE_FAILED.search(str(one)) and shutil.disk_usage(folder).free < LITTLE):
            return True
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes."""
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _is_of_shared_memory(error: BaseException, folder: Path) -> bool:
    """Whether SHM is full: torch says so, or the error names no file and only SHM has no free space."""
    causes = list(_causes(error))
    if any(SHARED in str(one) for one in causes):
        return True
    is_named = any(getattr(one, "filename", None) for one in causes)
    is_of_space = any(getattr(one, "errno", errno.ENOSPC) == errno.ENOSPC for one in causes)
    if is_named or not is_of_space or not SHM.is_dir():
        return False
    return shutil.disk_usage(SHM).free < LITTLE <= shutil.disk_usage(folder).free


def describe_full_disk(folder: Path, activity: str, error: BaseException) -> str:
    """The full file system, its size and free space, the file and the activity, as text."""
    during = f" in {activity}" if activity else ""
    if _is_of_shared_memory(error, folder):
        usage = shutil.disk_usage(SHM)
        return (
            f"no shared memory{during}: {SHM} ({usage.total / 1e6:,.0f} MB) has {usage.free / 1e6:,.1f} MB left; "
            "give the container more (--shm-size=2g), or lower cluster.engine.dataloader_num_workers"
        )
    mount, kind = find_mount(folder)
    usage = shutil.disk_usage(folder)
    what = getattr(error, "filename", None)
    named = f" ({what})" if what else ""
    is_limited = any(getattr(one, "errno", 0) == errno.EFBIG or TOO_LARGE.search(str(one)) for one in _causes(error))
    limit = ", or the limit of the file size (ulimit -f) is too low" if is_limited else ""
    return (
        f"no disk space{during}{named}: the file system at {mount} ({kind}, {usage.total / 1e6:,.0f} MB) has "
        f"{usage.free / 1e6:,.1f} MB left{limit}"
    )


def find_mount(folder: Path) -> tuple[str, str]:
    """Mount point and type of the file system of a directory."""
    here = os.path.realpath(folder)
    mounts = [
        part
        for part in psutil.disk_partitions(all=True)
        if here == part.mountpoint or here.startswith(part.mountpoint.rstrip("/") + "/")
    ]
    longest = max(mounts, key=lambda part: len(part.mountpoint), default=None)
    return (longest.mountpoint, longest.fstype) if longest else ("/", "unknown")

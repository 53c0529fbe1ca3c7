"""A full disk, in one line: every library has its own words for it."""

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
SAID: Final = re.compile(  # safetensors writes in Rust; torch in C++, without saying why it failed
    r"os error (28|122|27)\b|No space left on device|Disk quota exceeded|File too large|database or disk is full"
)
TORN: Final = re.compile(r"PytorchStreamWriter failed|unexpected pos \d+ vs \d+|file write failed")
TOO_LARGE: Final = re.compile(r"os error 27\b|File too large")
SHARED: Final = "</torch_"  # what a process gives another one lies in files of this name in SHM
SHM: Final = Path("/dev/shm")
AGAIN: Final = "free some, and repeat the command"
GOES_ON: Final = f"{AGAIN}, it goes on from the newest checkpoint"
LITTLE: Final = 64 << 20  # bytes: with less free, it is the disk that torch could not write to


@contextmanager
def explain_full_disk(folder: Path, doing: Callable[[], str], remedy: str = GOES_ON) -> Iterator[None]:
    """BadInput in place of the error of a full disk inside the block: the file system, and what was to be written to a
    folder, or to the nearest one above it that is there."""
    try:
        yield
    except SesameError:
        raise
    except Exception as error:
        there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.is_dir())
        if is_full(error, there):
            raise BadInput(f"{folder}: {describe_full_disk(there, doing(), error)}; {remedy}") from error
        raise


def describe(error: BaseException) -> str:
    """Which file system is full, in a line, where that is what an error of a command comes from; else ""."""
    named = [Path(name) for one in _causes(error) if isinstance(name := getattr(one, "filename", None), str)]
    paths = (*(named[0].absolute().parents if named else ()), Path.cwd())
    folder = next(path for path in paths if path.is_dir())
    return f"{describe_full_disk(folder, '', error)}; {AGAIN}" if is_full(error, folder) else ""


def is_full(error: BaseException, folder: Path) -> bool:
    """Whether an error, or what it came from, is that of a full disk."""
    for one in _causes(error):
        if isinstance(one, OSError) and one.errno in FULL:
            return True
        if SAID.search(str(one)) or (TORN.search(str(one)) and shutil.disk_usage(folder).free < LITTLE):
            return True
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and what it came from."""
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _is_of_shared_memory(error: BaseException, folder: Path) -> bool:
    """Whether it is SHM that is full: torch says so, or no file is named, and SHM has no room while the folder has."""
    causes = list(_causes(error))
    if any(SHARED in str(one) for one in causes):
        return True
    is_named = any(getattr(one, "filename", None) for one in causes)
    is_of_space = any(getattr(one, "errno", errno.ENOSPC) == errno.ENOSPC for one in causes)
    if is_named or not is_of_space or not SHM.is_dir():
        return False
    return shutil.disk_usage(SHM).free < LITTLE <= shutil.disk_usage(folder).free


def describe_full_disk(folder: Path, doing: str, error: BaseException) -> str:
    """Which file system is full, how much it has, and what was to be written."""
    during = f" in {doing}" if doing else ""
    if _is_of_shared_memory(error, folder):
        usage = shutil.disk_usage(SHM)
        return (
            f"no shared memory{during}: {SHM} ({usage.total / 1e6:,.0f} MB) has {usage.free / 1e6:,.1f} MB left; "
            "give the container more (--shm-size=2g), or take fewer cluster.engine.dataloader_num_workers"
        )
    mount, kind = find_mount(folder)
    usage = shutil.disk_usage(folder)
    what = getattr(error, "filename", None)
    named = f" ({what})" if what else ""
    is_limited = any(getattr(one, "errno", 0) == errno.EFBIG or TOO_LARGE.search(str(one)) for one in _causes(error))
    limit = ", or the limit of a file's size (ulimit -f) is too low" if is_limited else ""
    return (
        f"no disk space{during}{named}: the file system at {mount} ({kind}, {usage.total / 1e6:,.0f} MB) has "
        f"{usage.free / 1e6:,.1f} MB left{limit}"
    )


def find_mount(folder: Path) -> tuple[str, str]:
    """Where the file system of a folder is mounted, and of which type it is."""
    here = os.path.realpath(folder)
    found = [
        part
        for part in psutil.disk_partitions(all=True)
        if here == part.mountpoint or here.startswith(part.mountpoint.rstrip("/") + "/")
    ]
    longest = max(found, key=lambda part: len(part.mountpoint), default=None)
    return (longest.mountpoint, longest.fstype) if longest else ("/", "unknown")

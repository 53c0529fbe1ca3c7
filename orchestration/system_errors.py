"""What an error of the system says of this machine or of a path, in one line, whichever library raised it; full_disk.py
has those of a disk."""

import errno
import os
import re
from typing import Final

from orchestration import full_disk
from preprocessing.errors import BadInput, ResourceError

UNUSABLE: Final = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EBUSY,
    errno.EEXIST, errno.EIO, errno.ESTALE,
)  # fmt: skip


def describe(error: Exception) -> tuple[str, int]:
    """What is wrong and what to do about it, with the exit code; "" where it is no error of the system, or a bug."""
    if lacking := _lacking(error):
        return lacking, ResourceError.exit_code
    return _gone(error) or full_disk.describe(error) or _unusable(error), BadInput.exit_code


def _lacking(error: Exception) -> str:
    """Which limit of this process, or of the machine, an error comes from; else ""."""
    number = error.errno if isinstance(error, OSError) else 0
    is_of_memory = isinstance(error, MemoryError) or number == errno.ENOMEM
    if is_of_memory or re.search(r"failed to map segment|an't allocate memory|annot allocate memory", str(error)):
        return f"no memory left ({str(error) or 'MemoryError'}); raise the limit (ulimit -v), or end other processes"
    if number in (errno.EMFILE, errno.ENFILE):
        return f"{error}; raise the limit: `ulimit -n 4096`, and repeat the command"
    if number == errno.EAGAIN or "can't start new thread" in str(error):
        return f"{error}: no more processes or threads; raise the limit (ulimit -u), or end other processes"
    return ""


def _gone(error: Exception) -> str:
    """That the current folder is gone, where an error comes from that; else ""."""
    if isinstance(error, FileNotFoundError):
        try:
            os.getcwd()
        except FileNotFoundError:
            return "the current folder is gone: deleted, or moved; change to one that is there"
    return ""


def _unusable(error: Exception) -> str:
    """What is wrong with a path, where an error of the system says so; else ""."""
    if not isinstance(error, OSError) or error.errno not in UNUSABLE:
        return ""
    path = error.filename or "the disk of --output-dir"
    return f"{path}: {error.strerror}; check the path and its permissions, or give another --output-dir"

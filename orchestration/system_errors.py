"""Describes errors of the operating system in one line, whichever library raised them.

full_disk.py does the same for a full disk.
"""

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
    """The cause, the remedy and the exit code; the text is "" for an error of another kind."""
    if message := _describe_limit(error):
        return message, ResourceError.exit_code
    return _describe_missing_cwd(error) or full_disk.describe(error) or _describe_path(error), BadInput.exit_code


def _describe_limit(error: Exception) -> str:
    """The limit of this process or machine that caused an error, with a remedy; "" if none did."""
    number = error.errno if isinstance(error, OSError) else 0
    is_of_memory = isinstance(error, MemoryError) or number == errno.ENOMEM
    if is_of_memory or re.search(r"failed to map segment|an't allocate memory|annot allocate memory", str(error)):
        return f"out of memory ({str(error) or 'MemoryError'}); raise the limit (ulimit -v), or end other processes"
    if number in (errno.EMFILE, errno.ENFILE):
        return f"{error}; raise the limit: `ulimit -n 4096`, and repeat the command"
    if number == errno.EAGAIN or "can't start new thread" in str(error):
        return f"{error}: no more processes or threads; raise the limit (ulimit -u), or end other processes"
    return ""


def _describe_missing_cwd(error: Exception) -> str:
    """A message if an error was caused by a missing current directory; else ""."""
    if isinstance(error, FileNotFoundError):
        try:
            os.getcwd()
        except FileNotFoundError:
            return "the current directory was deleted or moved; change to an existing directory"
    return ""


def _describe_path(error: Exception) -> str:
    """The problem of a path that caused an error, with a remedy; "" if none did."""
    if not isinstance(error, OSError) or error.errno not in UNUSABLE:
        return ""
    path = error.filename or "the disk of --output-dir"
    return f"{path}: {error.strerror}; check the path and its permissions, or give another --output-dir"

"""Detect threads, child processes and open files that a call leaves behind in this process."""

import gc
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil

SETTLE_S = 10.0  # longest wait until threads and processes have ended; without leftovers there is no wait
FOR_GOOD = ("pydevd", "pytest_timeout")  # threads of debuggers and of pytest


@dataclass
class Left:
    """The threads, processes and files that exist after a block, but did not exist before it."""

    threads: list[str] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)


@contextmanager
def outliving(ignore: tuple[str, ...] = ()) -> Iterator[Left]:
    """Record what a block leaves behind: names of threads, command lines of children, paths of files.

    The result is complete when the block has ended, even with an error. Names that begin with one of `ignore` are
    ignored, because some libraries keep a thread or a file until the process ends.
    """
    threads, processes, files = set(threading.enumerate()), set(_children()), Counter(_files())
    left = Left()

    def look() -> None:
        gc.collect()
        left.threads = [
            one.name for one in threading.enumerate() if one not in threads and not _is_one(one.name, ignore)
        ]
        left.processes = [text for one in set(_children()) - processes if not _is_one(text := _text(one), ignore)]
        left.files = [one for one in (Counter(_files()) - files).elements() if not _is_one(one, ignore)]

    try:
        yield left
    finally:
        until_s = time.monotonic() + SETTLE_S
        look()
        while (left.threads or left.processes or left.files) and time.monotonic() < until_s:
            time.sleep(0.05)
            look()


def _is_one(name: str, of: tuple[str, ...]) -> bool:
    return name.startswith((*of, *FOR_GOOD))


def _children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _text(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline()) or process.name()
    return "ended"


def _files() -> list[str]:
    """The open files of this process; of pipes and sockets, which have numbers, only the kind."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}").partition(":[")[0])
    return [path for path in found if not path.startswith("/proc/")]

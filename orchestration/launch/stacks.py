"""What a worker that hangs is doing: the stacks of all of its threads, in a file of the run's folder.

It is written by the worker itself where that still answers; else by faulthandler, when a signal arrives: also where
a library holds the interpreter's lock. A process that was stopped (SIGSTOP) does neither, and is named as such.
"""

import faulthandler
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from orchestration.launch.processes import ProcessIdentity

FOLDER: Final = "stacks"  # in that of a run
SIGNAL: Final = signal.SIGUSR2


def file_of(folder: Path, rank: int) -> Path:
    """Of a worker of the run in `folder`."""
    return folder / FOLDER / f"worker-{rank}.txt"


class Stacks:
    """The file of this process."""

    def __init__(self, folder: Path, rank: int) -> None:
        path = file_of(folder, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        faulthandler.register(SIGNAL, self._file, all_threads=True)

    def dump(self, where: str) -> None:
        """Add the stacks of all threads, below a line that says when, and where in its work this process is."""
        self._file.write(f"\n{_now()}, process {os.getpid()} {where}\n".encode())
        faulthandler.dump_traceback(self._file, all_threads=True)


def request_stacks(folder: Path, rank: int, process: ProcessIdentity) -> str:
    """Have a process that does not answer write its stacks by a signal, where it is one of this machine; its state."""
    found = process.found()
    if found is None:
        return "gone"
    with suppress(psutil.Error, OSError):
        state = found.status()
        with file_of(folder, rank).open("a") as file:
            file.write(f"\n{_now()}, {process} does not answer, its state is {state}\n")
        if state != psutil.STATUS_STOPPED:
            found.send_signal(SIGNAL)
        return state
    return "gone"


def remove_empty(folder: Path) -> None:
    """Remove the files of workers that nobody asked for their stacks."""
    for file in (folder / FOLDER).glob("worker-*.txt"):
        if not file.stat().st_size:
            file.unlink()
    with suppress(OSError):  # it is not empty, or not there
        (folder / FOLDER).rmdir()


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")

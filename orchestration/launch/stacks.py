"""The stacks of all threads of a worker that hangs, in a file in the run directory.

If a worker still answers calls, it writes the file itself. Otherwise a signal makes faulthandler write it, even if a
library holds the lock of the interpreter. A stopped process (SIGSTOP) can do neither; the file then contains its state.
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

FOLDER: Final = "stacks"  # directory of the stacks, in the run directory
SIGNAL: Final = signal.SIGUSR2


def file_of(folder: Path, rank: int) -> Path:
    """The file with the stacks of a worker of the run in `folder`."""
    return folder / FOLDER / f"worker-{rank}.txt"


class Stacks:
    """Writes the stacks of this process."""

    def __init__(self, folder: Path, rank: int) -> None:
        path = file_of(folder, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        faulthandler.register(SIGNAL, self._file, all_threads=True)

    def dump(self, where: str) -> None:
        """Append the stacks of all threads, below a line with the time and the activity of this process."""
        self._file.write(f"\n{_timestamp()}, process {os.getpid()} {where}\n".encode())
        faulthandler.dump_traceback(self._file, all_threads=True)


def request_stacks(folder: Path, rank: int, process: ProcessIdentity) -> str:
    """Request the stacks of a process of this machine by a signal. Returns the state of the process."""
    local = process.find()
    if local is None:
        return "gone"
    with suppress(psutil.Error, OSError):
        state = local.status()
        with file_of(folder, rank).open("a") as file:
            file.write(f"\n{_timestamp()}, {process} does not answer, its state is {state}\n")
        if state != psutil.STATUS_STOPPED:
            local.send_signal(SIGNAL)
        return state
    return "gone"


def remove_empty(folder: Path) -> None:
    """Remove the empty files, of workers whose stacks were never requested."""
    for file in (folder / FOLDER).glob("worker-*.txt"):
        if not file.stat().st_size:
            file.unlink()
    with suppress(OSError):  # the directory is not empty, or does not exist
        (folder / FOLDER).rmdir()


def _timestamp() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")

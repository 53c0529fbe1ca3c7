"""Run a command as a user or a scheduler does, with the times of its output lines, its processes and its exit code."""

import os
import random
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

ROOT: Final = Path(__file__).parents[2]
LOOK_S: Final = 0.005  # interval for checking whether a moment has come


class Missed(Exception):
    """A moment did not occur: the command ended before, or the time limit passed."""


def new_mark() -> int:
    """A number that marks all processes of a point.

    It is set as a resource limit that nothing here uses (bytes of POSIX message queues), because child processes
    inherit it. An environment variable would not work, because workers of Ray overwrite it with their title. Sessions
    and parents of processes change.
    """
    return random.SystemRandom().randrange(100_000, 800_000)


def marked(mark: int) -> list[psutil.Process]:
    """The processes with this mark that have not ended."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.rlimit(psutil.RLIMIT_MSGQUEUE)[0] == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


class Command:
    """A running command in a new session; its stderr is also written to `log`."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], log: Path, mark: int) -> None:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_MSGQUEUE, (mark, resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1]))

        self.began_s = time.monotonic()
        self.lines: list[tuple[float, str]] = []
        self._log = log.open("a", encoding="utf-8")
        self._log.write(f"\n$ {' '.join(words)}\n")
        self.process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=os.environ | dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=limit,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append((time.monotonic(), line.rstrip("\n")))
            self._log.write(line)
            self._log.flush()

    def line_time_s(self, begins: str, number: int = 1, since_s: float = 0.0) -> float:
        """The time of the `number`th line since `since_s` that begins with a text (monotonic clock); 0 if none yet."""
        times = [at_s for at_s, line in list(self.lines) if at_s >= since_s and line.startswith(begins)]
        return times[number - 1] if len(times) >= number else 0.0

    def find_line(self, pattern: str, since_s: float = 0.0) -> str:
        """The first line since `since_s` that matches a pattern; "" if none does."""
        return next((line for at_s, line in list(self.lines) if at_s >= since_s and re.search(pattern, line)), "")

    @property
    def last_line(self) -> str:
        """The last line on stderr."""
        return self.lines[-1][1] if self.lines else ""

    def refusals(self) -> list[str]:
        """The error output of the command: the line `sesame: ...`, or a traceback."""
        lines = [line for _, line in self.lines]
        first = next((at for at, line in enumerate(lines) if line.startswith(("sesame: ", "Traceback"))), len(lines))
        return lines[first:]

    def until(self, condition: Callable[[], object], timeout_s: float, look_s: float = LOOK_S) -> None:
        """Wait for a condition; raise Missed if the command ends first or it takes too long."""
        until_s = time.monotonic() + timeout_s
        while not condition():
            if self.process.poll() is not None:
                raise Missed(f"the command ended with {self.process.returncode} ({self.last_line})")
            if time.monotonic() > until_s:
                raise Missed(f"not within {timeout_s:.0f} s ({self.last_line})")
            time.sleep(look_s)

    def wait(self, timeout_s: float) -> int:
        """Wait for the end; return the exit code, or minus the number of a signal. Missed if it does not end."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Missed(f"the command did not end within {timeout_s:.0f} s ({self.last_line})") from None
        self._reader.join(5.0)  # a process that outlives the command may keep the pipe open
        return code

    def below(self) -> Iterator[psutil.Process]:
        """All child processes of the command, at any depth."""
        with suppress(psutil.Error):
            yield from psutil.Process(self.process.pid).children(recursive=True)

    def kill_all(self, mark: int) -> None:
        """Kill the command and all processes with the mark."""
        left = marked(mark)
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=10)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)


def sesame(*words: str) -> list[str]:
    """The words of a `sesame` command of this checkout."""
    return [sys.executable, "-m", "sesame", *words]

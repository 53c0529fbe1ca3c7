"""A command as a user or a scheduler starts it: its lines with their times, its processes, its end."""

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
LOOK_S: Final = 0.005  # between two looks at whether a moment has come


class Missed(Exception):
    """What was waited for has not come: the command has ended, or the time is over."""


def new_mark() -> int:
    """A number that marks the processes of a point.

    It is a limit of theirs that nothing here needs (bytes of POSIX message queues) and that all below inherit. Their
    environment would not do: Ray's workers write their title over it. Their session and parents change.
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
    """A command that runs, in a session of its own; what it says on stderr goes to `log` too."""

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

    def said_s(self, begins: str, number: int = 1, since_s: float = 0.0) -> float:
        """When a line began so for the `number`th time since then, by the monotonic clock; 0: not yet."""
        times = [at_s for at_s, line in list(self.lines) if at_s >= since_s and line.startswith(begins)]
        return times[number - 1] if len(times) >= number else 0.0

    def told(self, pattern: str, since_s: float = 0.0) -> str:
        """The first line since then in which a pattern is found; "" where there is none."""
        return next((line for at_s, line in list(self.lines) if at_s >= since_s and re.search(pattern, line)), "")

    @property
    def last_line(self) -> str:
        """The last one on stderr."""
        return self.lines[-1][1] if self.lines else ""

    def refusals(self) -> list[str]:
        """What the command says of its end: the line of `sesame: ...`, or a traceback."""
        lines = [line for _, line in self.lines]
        first = next((at for at, line in enumerate(lines) if line.startswith(("sesame: ", "Traceback"))), len(lines))
        return lines[first:]

    def until(self, condition: Callable[[], object], timeout_s: float, look_s: float = LOOK_S) -> None:
        """Wait for a condition. Missed where the command ends first, or it takes too long."""
        until_s = time.monotonic() + timeout_s
        while not condition():
            if self.process.poll() is not None:
                raise Missed(f"the command had ended with {self.process.returncode} ({self.last_line})")
            if time.monotonic() > until_s:
                raise Missed(f"not within {timeout_s:.0f} s ({self.last_line})")
            time.sleep(look_s)

    def ended(self, timeout_s: float) -> int:
        """The exit code, minus the signal where one has ended it. Missed where it does not end."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Missed(f"it has not ended within {timeout_s:.0f} s ({self.last_line})") from None
        self._reader.join(5.0)  # a process that outlives it may hold the pipe
        return code

    def below(self) -> Iterator[psutil.Process]:
        """All processes below this one."""
        with suppress(psutil.Error):
            yield from psutil.Process(self.process.pid).children(recursive=True)

    def kill_all(self, mark: int) -> None:
        """End it and all that it has left behind, however it is."""
        left = marked(mark)
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=10)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)


def sesame(*words: str) -> list[str]:
    """The words of a command of this checkout."""
    return [sys.executable, "-m", "sesame", *words]

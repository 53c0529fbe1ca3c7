"""A process and all that it starts: what it says, its time on the clock and on the cores, its memory by stage."""

import ctypes
import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psutil


@dataclass
class Run:
    """What one run took: seconds of the clock and of all cores, bytes of all processes; what it said at its end."""

    wall: float = 0.0
    cpu: float = 0.0
    peaks: dict[str, int] = field(default_factory=dict)  # stage -> bytes
    begins: dict[str, float] = field(default_factory=dict)  # stage -> seconds from the start
    said: dict[str, Any] = field(default_factory=dict)

    @property
    def peak(self) -> int:
        return max(self.peaks.values())

    @property
    def start(self) -> float:
        """Seconds before the first stage: the interpreter and the imports."""
        return min(self.begins.values())


def measured(command: Sequence[str], cores: Sequence[int], environment: Mapping[str, str]) -> Run:
    """Run a command on these cores and wait for all that it starts; what it says is as task.py has it.

    The caller adopts the orphans of what it starts (`adopt`), or their CPU time is lost.
    """
    run, stage = Run(), "start"
    before, begin = _children_cpu(), time.perf_counter()
    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(os.sched_setaffinity, 0, cores),
    )
    errors = list[str]()
    reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()))
    reader.start()
    finished = threading.Event()

    def look() -> None:
        while not finished.wait(0.1):
            run.peaks[stage] = max(run.peaks.get(stage, 0), _resident())

    looker = threading.Thread(target=look)
    looker.start()
    for line in process.stdout or ():
        if line.startswith("stage "):
            stage = line.split()[1]
            run.begins[stage] = time.perf_counter() - begin
        elif line.startswith("{"):
            run.said = json.loads(line)
    process.wait()
    run.wall = time.perf_counter() - begin
    finished.set()
    looker.join()
    reader.join()
    if process.returncode or not run.said:
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}\n{''.join(errors[-20:])}")
    with suppress(ChildProcessError):
        while os.wait():
            pass
    run.cpu = _children_cpu() - before
    return run


def adopt() -> None:
    """Become the parent of all processes below whose own parent ends (prctl 36, PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def _children_cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _resident() -> int:
    """Bytes of the resident sets of all processes below this one."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total

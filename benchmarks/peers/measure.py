"""Measures a process and its descendants: wall time, CPU time and memory by stage."""

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
    """Measurements of a run, over all its processes, and the JSON that it printed at its end."""

    wall: float = 0.0  # seconds
    cpu: float = 0.0  # seconds
    peaks: dict[str, int] = field(default_factory=dict)  # stage -> bytes
    begins: dict[str, float] = field(default_factory=dict)  # stage -> seconds from the start
    printed: dict[str, Any] = field(default_factory=dict)

    @property
    def peak(self) -> int:
        """The highest memory of all stages, in bytes."""
        return max(self.peaks.values())

    @property
    def start(self) -> float:
        """Seconds before the first stage, for the interpreter and the imports."""
        return min(self.begins.values())


def measured(command: Sequence[str], cores: Sequence[int], environment: Mapping[str, str]) -> Run:
    """Run a command on these cores and wait for all its processes. task.py defines the output of the command.

    Call `adopt` first; otherwise the CPU time of orphaned processes is lost.
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

    def sample_memory() -> None:
        while not finished.wait(0.1):
            run.peaks[stage] = max(run.peaks.get(stage, 0), _resident())

    sampler = threading.Thread(target=sample_memory)
    sampler.start()
    for line in process.stdout or ():
        if line.startswith("stage "):
            stage = line.split()[1]
            run.begins[stage] = time.perf_counter() - begin
        elif line.startswith("{"):
            run.printed = json.loads(line)
    process.wait()
    run.wall = time.perf_counter() - begin
    finished.set()
    sampler.join()
    reader.join()
    if process.returncode or not run.printed:
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}\n{''.join(errors[-20:])}")
    with suppress(ChildProcessError):
        while os.wait():
            pass
    run.cpu = _children_cpu() - before
    return run


def adopt() -> None:
    """Become the parent of descendants whose parent has ended (prctl 36, PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def _children_cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _resident() -> int:
    """The sum of the resident sets of all descendants, in bytes."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total

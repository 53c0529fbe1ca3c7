"""Groups of workers, each of which trains many cells: starting DeepSpeed takes longer than training twenty steps."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.training.engines.test_zero import spawn

PATIENCE: Final = 420.0  # seconds without a finished cell, after which a group counts as failed
LOOKS: Final = 0.2  # seconds between two checks of a group


class Seen(NamedTuple):
    """The losses of a cell, or the error that prevented them."""

    losses: list[float]
    cpu_s: float = 0.0  # CPU seconds of one worker
    error: str = ""


Told = Callable[[str, Seen], None]
"""Called with the name of a job and its result."""


def train_in_groups(jobs: Mapping[str, Any], world: int, folder: Path, program: str, reported: Told) -> dict[str, Seen]:
    """Train all jobs on groups of `world` workers and return the results by name. A failing job ends its group, and a
    new group trains the other jobs."""
    found: dict[str, Seen] = {}
    number = 0
    while len(found) < len(jobs):
        names = [name for name in jobs if name not in found]
        number += 1
        for name, seen in _until_one_fails([jobs[name] for name in names], names, world, folder / str(number), program):
            found[name] = seen
            reported(name, seen)
    return found


def _until_one_fails(
    jobs: Sequence[Any], names: Sequence[str], world: int, folder: Path, program: str
) -> Iterator[tuple[str, Seen]]:
    """Yield the results one by one. A failure is the last result."""
    with _group(world, list(jobs), folder, program) as workers:
        done, since = 0, time.monotonic()
        while done < len(jobs):
            time.sleep(LOOKS)
            codes = [worker.poll() for worker in workers]
            seen = _seen(folder)
            for result in seen[done:]:
                yield names[done], Seen(result["losses"], result["cpu_s"])
                done, since = done + 1, time.monotonic()
            if done == len(jobs):
                return
            dead = next((rank for rank, code in enumerate(codes) if code), None)
            if dead is not None:
                yield names[done], Seen([], error=_last_line(folder, dead))
                return
            if time.monotonic() - since > PATIENCE:
                yield names[done], Seen([], error=f"no result within {PATIENCE:.0f} s")
                return


@contextmanager
def _group(world: int, jobs: list[Any], folder: Path, program: str) -> Iterator[list["subprocess.Popen[bytes]"]]:
    workers = spawn(world, jobs, folder, program)
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.wait()


def _seen(folder: Path) -> list[Any]:
    file = folder / "out.json"
    return json.loads(file.read_text()) if file.exists() else []


def _last_line(folder: Path, rank: int) -> str:
    """The line with the exception, or the last line; notes may follow the exception."""
    lines = [line for line in (folder / f"{rank}.log").read_text(errors="replace").splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Input|Diverged)\b", line)]
    return (raised or lines or [f"worker {rank} ended without a message"])[-1]


def in_lanes(jobs: Mapping[str, Any], lanes: int, folder: Path, program: str, reported: Told) -> dict[str, Seen]:
    """Like `train_in_groups`, for jobs of one worker each, on `lanes` groups at a time."""
    names = list(jobs)
    with ThreadPoolExecutor(lanes) as pool:
        parts = [{name: jobs[name] for name in names[lane::lanes]} for lane in range(lanes)]
        runs = [
            pool.submit(train_in_groups, part, 1, folder / f"lane-{n}", program, reported)
            for n, part in enumerate(parts)
        ]
        return {name: seen for run in runs for name, seen in run.result().items()}

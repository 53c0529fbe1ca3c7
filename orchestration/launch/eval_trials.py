"""A grid of evaluations on Ray: each cell is a task of Ray's, sized from the cluster file, as many at once as fit."""

import logging
import os
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orchestration.launch.eval_trial import RETRIES, EvalTrial, TrialResources, evaluate_cell
from orchestration.launch.multi_worker_eval import evaluate_together
from orchestration.launch.step_reports import FineTunings
from orchestration.progress import Report
from orchestration.signals import StopRequest
from preprocessing.errors import ResourceError, SesameError

if TYPE_CHECKING:  # torch is for the workers
    from training.evaluation import EvalResult

log = logging.getLogger(__name__)
T = TypeVar("T")

POLL_S = 0.5


def run_trials(
    cells: Sequence[EvalTrial],
    room: TrialResources,
    on_done: Callable[[int, "EvalResult"], str],
    asked: StopRequest,
    report: Report,
) -> dict[int, SesameError]:
    """Evaluate all cells on the Ray that this process is connected to; `on_done` gets each result as it comes,
    and gives back what is shown of it.

    Returns the cells that failed, by number, and why: one whose process dies, or that raises what is no SesameError, is
    tried twice. ResourceError where Ray has no room for any. SIGTERM and SIGINT end in Preempted or KeyboardInterrupt:
    what is done has been handed to `on_done`.
    """
    import ray

    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    _check(room, machines)
    begin = partial(_begin, room)
    failed: dict[int, SesameError] = {}
    report({"stage": "loading workers", "cells": len(cells)})
    with tempfile.TemporaryDirectory(prefix="sesame-steps-", ignore_cleanup_errors=True) as counts:
        files = [Path(counts) / str(number) for number in range(len(cells))]
        number_of, waiting, to_begin = dict[Any, int](), list[Any](), deque(range(len(cells)))
        most = (
            len(cells) if room.workers == 1 else room.fits(machines)
        )  # groups wait for each other, tasks in Ray's queue
        together = FineTunings(len(cells), max(cell.updates for cell in cells), report)
        tried_twice, last = set[int](), ""
        while waiting or to_begin:
            while to_begin and len(waiting) < most:
                number = to_begin.popleft()
                waiting.append(future := begin(cells[number], files[number]))
                number_of[future] = number
            done, waiting = ray.wait(waiting, timeout=POLL_S)
            if asked.signal:
                left = len(waiting) + len(done) + len(to_begin)
                raise asked.stopped(f"stopped with {left} of {len(cells)} evaluations to do")
            for future in done:
                number = number_of[future]
                found = _result(future)
                if isinstance(found, _Retry) and number not in tried_twice:
                    tried_twice.add(number)
                    log.warning("%s: %s; tried again", cells[number].name, found)
                    to_begin.append(number)
                elif isinstance(found, SesameError):
                    failed[number] = found
                    log.warning("%s: has no score, and the same command tries it again: %s", cells[number].name, found)
                else:
                    last = on_done(number, found)
            at_work = [number_of[future] for future in waiting]
            begun = sum(min(_counted(files[number]), cells[number].updates) for number in at_work)
            if len(at_work) < len(cells) or begun:
                together.at(len(cells) - len(waiting) - len(to_begin), begun, last)
    return failed


def _begin(room: TrialResources, cell: EvalTrial, count: Path) -> Any:
    """A cell on its way: a task, or, where something is trained and several workers do it, one that waits for them."""
    import ray

    if room.workers == 1 or cell.tuning is None:
        return ray.remote(_with).options(**room.options).remote(room.env, evaluate_cell, cell, count)
    return ray.remote(evaluate_together).options(num_cpus=0, max_retries=RETRIES).remote(cell, count, room)


def _with(env: Mapping[str, str], task: Callable[..., T], *arguments: Any) -> T:
    """What `task` returns, in a process of Ray's that has the variables of the cluster file."""
    os.environ |= env
    return task(*arguments)


def _check(room: TrialResources, machines: Sequence[Mapping[str, float]]) -> None:
    """ResourceError where no cell would ever begin: Ray would wait for such a machine without a word."""
    for name, each in (("CPU", room.cpus), ("GPU", room.gpus)):
        wants, has = each * room.workers, sum(machine.get(name, 0.0) for machine in machines)
        if wants > has:
            raise ResourceError(
                f"an evaluation wants {wants} {name}s by the cluster file, Ray has {has:g} in all; give "
                "another cluster with --cluster"
            )
    if not room.fits(machines):
        raise ResourceError(
            f"an evaluation wants {room.workers} workers with {room.cpus} CPUs and {room.gpus} GPUs each by the "
            "cluster file, and Ray's machines have no room for so many; give another cluster with --cluster"
        )


class _Retry(ResourceError):
    """A cell that may succeed when it is tried again."""


def _result(future: Any) -> "EvalResult | SesameError":
    """What became of a cell; an error of Ray's is one of the cell, and the others go on."""
    import ray
    from ray.exceptions import RayError, RayTaskError, WorkerCrashedError

    try:
        return ray.get(future)
    except RayTaskError as error:
        if isinstance(error.cause, SesameError):
            return error.cause
        return _Retry(_line(error.cause))
    except WorkerCrashedError:
        return ResourceError("its process died each time it was tried; is memory short (dmesg)?")
    except RayError as error:  # no memory left, a machine that is gone
        return _Retry(_line(error))


def _line(error: BaseException) -> str:
    """An error with the first line of what it says."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _counted(file: Path) -> int:
    """The steps that a cell has written down; 0 where it has not begun."""
    try:
        return int(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0

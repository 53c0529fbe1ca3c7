"""A grid of evaluations on Ray: each trial is a Ray task with the resources of the cluster file."""

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
from orchestration.launch.worker_errors import PROCESS_DIED
from orchestration.progress import Report
from orchestration.signals import StopRequest
from preprocessing.errors import ResourceError, SesameError
from preprocessing.imports import import_all, without_collection

if TYPE_CHECKING:  # only the workers import torch
    from training.evaluation import EvalResult

log = logging.getLogger(__name__)
T = TypeVar("T")

POLL_S = 0.5


def run_trials(
    trials: Sequence[EvalTrial],
    room: TrialResources,
    on_done: Callable[[int, "EvalResult"], str],
    stop_request: StopRequest,
    report: Report,
) -> dict[int, SesameError]:
    """Run all trials on the connected Ray, and return the error of each failed trial by its number.

    `on_done` receives the number and the result of each finished trial, and returns a text for the progress display. A
    trial is tried twice if its process dies, or if it raises an error other than a SesameError.

    Raises ResourceError if no trial fits on the machines of Ray. SIGTERM and SIGINT raise Preempted or
    KeyboardInterrupt; `on_done` has then received all finished results.
    """
    import ray

    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    _check_room(room, machines)
    start_trial = partial(_start_trial, room)
    failed: dict[int, SesameError] = {}
    report({"stage": "loading workers", "trials": len(trials)})
    _wait_for_processes(stop_request)
    with tempfile.TemporaryDirectory(prefix="sesame-steps-", ignore_cleanup_errors=True) as counts:
        files = [Path(counts) / str(number) for number in range(len(trials))]
        number_of, waiting, to_start = dict[Any, int](), list[Any](), deque(range(len(trials)))
        # Ray queues tasks until they have room. Groups of workers would block each other, so their number is limited.
        most = len(trials) if room.workers == 1 else room.fits(machines)
        progress = FineTunings(len(trials), max(trial.updates for trial in trials), report)
        tried_twice, last = set[int](), ""
        while waiting or to_start:
            while to_start and len(waiting) < most:
                number = to_start.popleft()
                waiting.append(future := start_trial(trials[number], files[number]))
                number_of[future] = number
            done, waiting = ray.wait(waiting, timeout=POLL_S)
            if stop_request.signal:
                unfinished = len(waiting) + len(done) + len(to_start)
                raise stop_request.make_exception(f"stopped with {unfinished} of {len(trials)} evaluations unfinished")
            for future in done:
                number = number_of[future]
                result = _result(future)
                if isinstance(result, _Retry) and number not in tried_twice:
                    tried_twice.add(number)
                    log.warning("%s: %s; trying again", trials[number].name, result)
                    to_start.append(number)
                elif isinstance(result, SesameError):
                    failed[number] = result
                    log.warning("%s: failed; repeat the command to try it again: %s", trials[number].name, result)
                else:
                    last = on_done(number, result)
            at_work = [number_of[future] for future in waiting]
            steps = sum(min(_read_count(files[number]), trials[number].updates) for number in at_work)
            if len(at_work) < len(trials) or steps:
                progress.update(len(trials) - len(waiting) - len(to_start), steps, last)
    return failed


def start_trial_processes(room: TrialResources, num: int) -> None:
    """Start the processes of up to `num` evaluations on the connected Ray, and do not wait for them.

    They import torch. `run_trials` waits for them, and Ray then runs evaluations in them, because their options are
    equal. With GPUs it would not, so that nothing is started.
    """
    import ray

    if room.gpus or room.workers > 1:
        return
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    task = ray.remote(_import_evaluation).options(**room.options | {"num_cpus": 0, "max_retries": 0})
    of_ray = _starting.setdefault(ray.get_runtime_context().get_node_id(), [])
    of_ray.extend(task.remote(room.env) for _ in range(min(num, room.fits(machines))))


_starting = dict[str, list[Any]]()  # by the node of the driver, which each new Ray replaces: futures of early processes


def _wait_for_processes(stop_request: StopRequest) -> None:
    """Wait for the processes that were started early. Their errors are ignored: the trials then start new ones."""
    import ray

    waiting = _starting.pop(ray.get_runtime_context().get_node_id(), [])
    _starting.clear()  # those of an earlier Ray of this process, which has ended
    while waiting and not stop_request.signal:
        _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=POLL_S)


def _import_evaluation(env: Mapping[str, str]) -> None:
    os.environ |= env
    with without_collection():
        import training.evaluation
        import training.formats

        import_all(training.evaluation)
        import_all(training.formats)


def _start_trial(room: TrialResources, trial: EvalTrial, count: Path) -> Any:
    """Start a trial and return its future. With training on several workers, the task waits for these workers."""
    import ray

    if room.workers == 1 or trial.tuning is None:
        return ray.remote(_run_with_env).options(**room.options).remote(room.env, evaluate_cell, trial, count)
    return ray.remote(evaluate_together).options(num_cpus=0, max_retries=RETRIES).remote(trial, count, room)


def _run_with_env(env: Mapping[str, str], task: Callable[..., T], *arguments: Any) -> T:
    """Set the variables of the cluster file in a process of Ray, then run `task` and return its result."""
    os.environ |= env
    return task(*arguments)


def _check_room(room: TrialResources, machines: Sequence[Mapping[str, float]]) -> None:
    """Raises ResourceError if no trial fits on these machines. Without this check, Ray would wait forever."""
    for name, each in (("CPU", room.cpus), ("GPU", room.gpus)):
        needed, available = each * room.workers, sum(machine.get(name, 0.0) for machine in machines)
        if needed > available:
            raise ResourceError(
                f"an evaluation needs {needed} {name}s according to the cluster file, but Ray has {available:g} in "
                "all; select another cluster file with --cluster"
            )
    if not room.fits(machines):
        raise ResourceError(
            f"the cluster file sets {room.workers} workers with {room.cpus} CPUs and {room.gpus} GPUs each, but Ray "
            "has no room for them; select another one with --cluster"
        )


class _Retry(ResourceError):
    """The trial failed, but a second attempt may succeed."""


def _result(future: Any) -> "EvalResult | SesameError":
    """The result of a trial, or its error. An error of Ray concerns this trial only, and the others continue."""
    import ray
    from ray.exceptions import RayError, RayTaskError, WorkerCrashedError

    try:
        return ray.get(future)
    except RayTaskError as error:
        if isinstance(error.cause, SesameError):
            return error.cause
        return _Retry(_first_line(error.cause))
    except WorkerCrashedError:
        return ResourceError(PROCESS_DIED)
    except RayError as error:  # out of memory, or a lost machine
        return _Retry(_first_line(error))


def _first_line(error: BaseException) -> str:
    """The type of an error and the first line of its message."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _read_count(file: Path) -> int:
    """The number of steps in the file of a trial; 0 if the trial has not started."""
    try:
        return int(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0

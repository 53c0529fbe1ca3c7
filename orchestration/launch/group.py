"""Ray: a group of workers that trains one run and is started again when one of them dies.

Plain actors in a placement group, not ray.train.TorchTrainer: a restart is fresh processes that look for the newest
whole checkpoint themselves, where Ray Train goes back to the last one its controller had polled (every two seconds); an
error of ours arrives as itself; SIGTERM ends in a checkpoint. Ray is left with what it is best at: placing processes on
one machine or many, and noticing that one is gone.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orchestration import figures, tracking
from orchestration.launch.attempt import Attempt, WorkerDied
from orchestration.launch.placement import placed
from orchestration.launch.session import fault, ray_session, renew
from orchestration.launch.worker import EXPORT
from orchestration.progress import Report, ignore
from orchestration.signals import Asked, signals_raise, stop_signals
from preprocessing.errors import Preempted, ResourceError, SesameError
from preprocessing.files import remove_unfinished, write_atomic
from training.run import Run

if TYPE_CHECKING:  # torch is for the workers
    from training.loop import Result

log = logging.getLogger(__name__)
T = TypeVar("T")

RUN = "pretrain.json"  # in the run folder: the run, as the workers got it
ONE_CORE: dict[str, Any] = {"num_cpus": 1, "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}}}
STOPPED = (Preempted, KeyboardInterrupt)  # what a run that was asked to stop ends with

Needs = tuple[int, int, int]
"""Workers, and cores and GPUs of each."""


def pretrain(
    run: Run,
    *,
    workers: int,
    cpus: int = 1,
    gpus: int = 0,
    place: tracking.Place,
    metadata: tracking.Metadata,
    address: str = "",
    max_restarts: int = 3,
    hang_s: float = 600.0,
    on_progress: Report = ignore,
    asked: Asked | None = None,
) -> "Result":
    """Train `run` with `workers` processes, track it, export its weights; the result of the first worker.

    A worker that dies, or a group that is silent for `hang_s` (watch.py), costs a restart of all from the newest
    checkpoint; more than `max_restarts` without progress in between raise ResourceError. SIGTERM and SIGINT end in a
    checkpoint, where steps were done, then in Preempted or KeyboardInterrupt; a second one does not wait. BadInput and
    Diverged come from the workers as they are. A caller that listens to signals itself gives `asked`, and holds the
    lock of the run's folder in any case.
    """
    folder = Path(run.folder)
    remove_unfinished(folder)  # what a start before has left that was killed
    if run.resume == "never":
        _set_aside(folder)
    tracking.history(folder)  # it is whole, or nothing begins
    write_atomic(folder / RUN, run.to_json().encode())
    now = _Now(on_progress)
    with (
        signals_raise(lambda: f"{folder}: stopped while {now.stage}"),
        _as_stage(now, "opening MLflow", tracking.run(place, folder, Path(run.corpus), metadata)) as tracked,
        ray_session(address, cpus=workers * cpus, gpus=workers * gpus, logs=folder / "ray-logs", report=now),
    ):
        now({"stage": "starting workers"})
        with nullcontext(asked) if asked else stop_signals() as asked:
            result = _until_done(run, (workers, cpus, gpus), tracked, asked, max_restarts, hang_s, now)
            now({"stage": "logging to MLflow"})
            if tracking.answers(tracked):
                log_results(folder, tracked, result.finished)
            else:
                tracking.note_behind(folder, results=result.finished)
                log.warning("MLflow does not answer: it lacks figures and model; the same command again logs them")
            if not result.finished:
                raise asked.stopped(f"{folder}: stopped after step {result.state.step:,} of {run.steps:,}")
    return result


def log_results(folder: Path, tracked: tracking.Tracked, finished: bool) -> None:
    """Keep the figures of a run in MLflow, and its net where it is finished."""
    with tracking.log_and_suppress("figures and model"):
        tracking.log_figures(tracked, figures.training(tracking.history(folder)))
        if finished and (folder / EXPORT).is_dir():
            tracking.log_model(tracked, folder / EXPORT)
        tracking.forget(folder, "results")


class _Now:
    """A report that remembers the stage."""

    def __init__(self, report: Report) -> None:
        self.report, self.stage = report, "starting"

    def __call__(self, event: Mapping[str, Any]) -> None:
        self.stage = event["stage"]
        self.report(event)


@contextmanager
def _as_stage(report: Report, stage: str, entered: AbstractContextManager[T]) -> Iterator[T]:
    """A context whose beginning is a stage."""
    report({"stage": stage})
    with entered as value:
        yield value


def _set_aside(folder: Path) -> None:
    """Begin the record anew, as the loop does with the checkpoints (`resume: never`)."""
    for name in (tracking.RUN_FILE, tracking.METRICS_FILE):
        if (folder / name).exists():
            os.replace(folder / name, folder / f"old-{name}")


# A group of workers


def _until_done(
    run: Run,
    needs: Needs,
    tracked: tracking.Tracked,
    asked: Asked,
    max_restarts: int,
    hang_s: float,
    on_progress: Report,
) -> "Result":
    """Train, and again from the newest checkpoint when a worker dies or hangs, as long as that leads on."""
    furthest, in_vain, restarts = -1, 0, 0
    with ExitStack() as room:
        group = room.enter_context(placed(*needs, run.machine, asked))
        while True:
            try:
                return Attempt(group, run, tracked, asked, hang_s, on_progress).result()
            except WorkerDied as death:
                in_vain = 0 if death.step > furthest else in_vain + 1
                furthest = max(furthest, death.step)
                if asked.signal:
                    raise asked.stopped(f"{run.folder}: {death} while it was to stop") from death
                if in_vain >= max_restarts:
                    raise ResourceError(
                        f"{run.folder}: {death} after step {death.step}, {in_vain + 1} times without progress; "
                        "if memory ran out (see dmesg), lower micro_tokens of the cluster"
                    ) from death
                restarts += 1
                log.warning("%s after step %d; starting again from the newest checkpoint", death, death.step)
            with tracking.log_and_suppress("the number of restarts"):
                tracking.within(tracking.SLOW_S, partial(tracking.tag, tracked, restarts=restarts))
            run = replace(run, resume="allow") if run.resume == "never" else run  # that was said of the first start
            if fault():
                room.close()
                renew()
                group = room.enter_context(placed(*needs, run.machine, asked))


# One task


def alone(task: Callable[..., T], *arguments: Any) -> T:
    """What `task` returns, in a process of its own with one core, on the Ray that this process is connected to."""
    import ray
    from ray.exceptions import RayTaskError, WorkerCrashedError

    try:
        return ray.get(ray.remote(task).options(**ONE_CORE).remote(*arguments))
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, SesameError) else error from None
    except WorkerCrashedError as error:
        raise ResourceError("its process died each time it was tried; is memory short (dmesg)?") from error


def cores() -> int:
    """Those of this machine that this process may use."""
    return len(os.sched_getaffinity(0))

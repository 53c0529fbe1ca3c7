"""Ray: a group of workers that trains one run and is started again when one of them dies.

Plain actors in a placement group, not ray.train.TorchTrainer: a restart is fresh processes that look for the newest
whole checkpoint themselves, where Ray Train goes back to the last one its controller had polled (every two seconds); an
error of ours arrives as itself; SIGTERM ends in a checkpoint. Ray is left with what it is best at: placing processes on
one machine or many, and noticing that one is gone.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orchestration import figures, tracking
from orchestration.launch.session import Asked, ray_session, stop_signals
from orchestration.launch.worker import EXPORT, Worker
from orchestration.progress import Report, ignore
from preprocessing.errors import Preempted, ResourceError, SesameError
from preprocessing.files import write_atomic
from training.run import Run
from training.specs import Machine

if TYPE_CHECKING:  # torch is for the workers
    from training.loop import Result

log = logging.getLogger(__name__)
T = TypeVar("T")

RUN = "pretrain.json"  # in the run folder: the run, as the workers got it
POLL_S = 0.5
PLACEMENT_S = 180.0  # for the resources of a group to become free
START_S = 600  # for the processes of all workers to begin; with a cold disk their imports alone take a minute
ONE_CORE: dict[str, Any] = {"num_cpus": 1, "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}}}
STOPPED = (Preempted, KeyboardInterrupt)  # what a run that was asked to stop ends with
GRACE_S = 30.0  # after an error in one worker: for the death of another to show, of which it may be the echo


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
    on_progress: Report = ignore,
    asked: Asked | None = None,
) -> "Result":
    """Train `run` with `workers` processes, track it, export its weights; the result of the first worker.

    A worker that dies costs a restart of all from the newest checkpoint; more than `max_restarts` without progress in
    between raise ResourceError. SIGTERM and SIGINT end in a checkpoint, then in Preempted or KeyboardInterrupt; a
    second one does not wait. BadInput and Diverged come from the workers as they are. A caller that listens to signals
    itself gives `asked`.
    """
    folder = Path(run.folder)
    if run.resume == "never":
        _set_aside(folder)
    write_atomic(folder / RUN, run.to_json().encode())
    logs = folder / "ray-logs"
    with (
        ray_session(address, cpus=workers * cpus, gpus=workers * gpus, logs=logs, report=on_progress),
        nullcontext(asked) if asked else stop_signals() as asked,
        _as_stage(on_progress, "opening MLflow", tracking.run(place, folder, Path(run.corpus), metadata)) as tracked,
        _as_stage(on_progress, "starting workers", placed(workers, cpus, gpus, run.machine)) as group,
    ):
        result = _until_done(group, run, tracked, asked, max_restarts, on_progress)
        on_progress({"stage": "logging to MLflow"})
        with tracking.log_and_suppress("figures and model"):
            tracking.log_figures(tracked, figures.training(tracking.history(folder)))
            if result.finished and (folder / EXPORT).is_dir():
                tracking.log_model(tracked, folder / EXPORT)
        if not result.finished:
            raise asked.stopped(f"{folder}: stopped after step {result.state.step:,} of {run.steps:,}")
    return result


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


class WorkerDied(Exception):
    """A worker's process is gone; `step` is the last one that the group had logged."""

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step


@dataclass(frozen=True)
class Group:
    """Room for the workers of a run, and how each of them starts."""

    num: int
    placement: Any
    options: dict[str, Any]

    def start(self, kind: type = Worker) -> list[Any]:
        """Fresh workers of a class that is made with rank and world, by rank."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Placed

        actor = ray.remote(kind)
        places = [Placed(self.placement, placement_group_bundle_index=rank) for rank in range(self.num)]
        return [
            actor.options(scheduling_strategy=place, **self.options).remote(rank, self.num)
            for rank, place in enumerate(places)
        ]


@contextmanager
def placed(num: int, cpus: int, gpus: int, machine: Machine) -> Iterator[Group]:
    """All workers have their place inside the block, or ResourceError."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    placement = placement_group([{"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}] * num, strategy="PACK")
    environment = {"DS_ACCELERATOR": machine.device, "OMP_NUM_THREADS": str(machine.threads)}
    try:
        if not placement.wait(PLACEMENT_S):
            free = {name: amount for name, amount in ray.available_resources().items() if name in ("CPU", "GPU")}
            raise ResourceError(
                f"{num} workers with {cpus} CPUs and {gpus} GPUs each have no place, Ray has {free or 'nothing'} free; "
                "ask for fewer workers, or wait for the other job to end"
            )
        # three methods at a time: train, and meanwhile poll and stop
        resources = {"num_cpus": cpus, "num_gpus": gpus, "max_concurrency": 3}
        yield Group(num, placement, resources | {"runtime_env": {"env_vars": environment}})
    finally:
        remove_placement_group(placement)


def _until_done(
    group: Group, run: Run, tracked: tracking.Tracked, asked: Asked, max_restarts: int, on_progress: Report
) -> "Result":
    """Train, and again from the newest checkpoint when a worker dies, as long as that leads on."""
    furthest, in_vain, restarts = -1, 0, 0
    while True:
        try:
            return _attempt(group, run, tracked, asked, on_progress)
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
                tracking.tag(tracked, restarts=restarts)
            run = replace(run, resume="allow") if run.resume == "never" else run  # that was said of the first start


def _attempt(group: Group, run: Run, tracked: tracking.Tracked, asked: Asked, on_progress: Report) -> "Result":
    """Start workers, watch them, end them. Raises WorkerDied, or what a worker raised."""
    import ray
    from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

    on_progress({"stage": "starting workers", "workers": group.num})
    workers, futures, step = group.start(), [], 0
    try:
        meeting, *_ = ray.get([worker.address.remote() for worker in workers], timeout=START_S)
        futures = [worker.train.remote(run.to_json(), meeting, tracked) for worker in workers]
        waiting, stop_sent = futures, False
        while waiting:
            done, waiting = ray.wait(waiting, timeout=POLL_S)
            ray.get(done)
            step = max(step, _relay(workers[0], on_progress))
            if asked.signal and not stop_sent:
                stop_sent = True
                ray.get([worker.stop.remote() for worker in workers])
        return ray.get(futures[0])
    except GetTimeoutError:
        raise ResourceError(
            f"{run.folder}: Ray did not start {len(workers)} processes in {START_S} s; what does `sesame doctor` say?"
        ) from None
    except RayActorError as error:
        cause = re.search(r"Worker exit type: (\w+)", str(error))  # SYSTEM_ERROR, NODE_OUT_OF_MEMORY, ...
        raise WorkerDied(
            f"{_dead(futures) or 'a worker'} died ({cause[1] if cause else 'no cause known'})", step
        ) from error
    except RayTaskError as error:
        if isinstance(error.cause, SesameError):
            raise error.cause from None
        if dead := _dead(futures, GRACE_S):
            raise WorkerDied(f"{dead} died", step) from error
        raise
    finally:
        for worker in workers:
            ray.kill(worker)


def _relay(worker: Any, on_progress: Report) -> int:
    """Pass on what the first worker has to say; its last logged step."""
    import ray
    from ray.exceptions import ActorUnavailableError

    try:
        step, events, said = ray.get(worker.poll.remote())
    except ActorUnavailableError:  # not reached for once; were it dead, its `train` would say so
        return 0
    for name, level, message in said:
        logging.getLogger(name).log(level, message)
    for event in events:
        on_progress(event)
    return step


def _dead(futures: Sequence[Any], patience_s: float = 0.0) -> str:
    """Which workers are gone, waiting for one to be, or for all to have ended otherwise."""
    import ray
    from ray.exceptions import RayActorError

    until = time.monotonic() + patience_s
    while True:
        ended, waiting = ray.wait(futures, num_returns=len(futures), timeout=0.1) if futures else ([], [])
        dead = []
        for future in ended:
            try:
                ray.get(future)
            except RayActorError:
                dead.append(f"worker {futures.index(future)}")
            except Exception:  # an error of another kind is not a death
                continue
        if dead or not waiting or time.monotonic() > until:
            return " and ".join(dead)


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

"""Ray: a group of workers that trains one run and is started again when one of them dies; a grid of fine-tunings.

Plain actors in a placement group, not ray.train.TorchTrainer: a restart is fresh processes that look for the newest
whole checkpoint themselves, where Ray Train goes back to the last one its controller had polled (every two seconds); an
error of ours arrives as itself; SIGTERM ends in a checkpoint. Ray is left with what it is best at: placing processes on
one machine or many, and noticing that one is gone.
"""

import json
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orchestration import figures, tracking
from orchestration.launch.session import Asked, ray_session, stop_signals
from orchestration.launch.steps import FineTunings
from orchestration.launch.worker import EXPORT, WEIGHTS, Worker, finetune_one
from orchestration.progress import Report, ignore
from preprocessing.errors import BadInput, DataError, Preempted, ResourceError, SesameError
from preprocessing.files import write_atomic
from training.run import Run
from training.specs import Machine

if TYPE_CHECKING:  # torch is for the workers
    from training.evaluation import Budget, Comparison, Outcome
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
        _as_stage(on_progress, "starting workers", _group(workers, cpus, gpus, run.machine)) as group,
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

    def start(self) -> list[Any]:
        """Fresh workers, by rank."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Placed

        actor = ray.remote(Worker)
        placed = [Placed(self.placement, placement_group_bundle_index=rank) for rank in range(self.num)]
        return [
            actor.options(scheduling_strategy=place, **self.options).remote(rank, self.num)
            for rank, place in enumerate(placed)
        ]


@contextmanager
def _group(num: int, cpus: int, gpus: int, machine: Machine) -> Iterator[Group]:
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


# Evaluation


def evaluate(
    folder: Path,
    *,
    tasks: Sequence[str],
    seeds: Sequence[int] = (0, 1, 2),
    budget: "Budget | None" = None,
    cpus: int = 0,
    address: str = "",
    on_progress: Report = ignore,
) -> list["Comparison"]:
    """Fine-tune the weights of the run in `folder` and random ones of their shape: each task, each seed, one core each.

    Returns a comparison per task; each becomes a child of the run's MLflow run. A task for which the held-out text is
    too small is left out with a warning; DataError where that is so of all. BadInput where the run has no weights yet
    or a task has no such name.
    """
    from training.evaluation import Budget, compare
    from training.tasks import TASKS

    if unknown := [task for task in tasks if task not in TASKS]:
        raise BadInput(f"task {unknown[0]!r} is not known, allowed are {', '.join(TASKS)}")
    if not (folder / WEIGHTS / "spec.json").exists():
        raise BadInput(f"{folder}: has no weights to evaluate; finish its training first with `sesame train`")
    budget = budget or Budget()
    corpus = Path(json.loads((folder / RUN).read_text())["corpus"])
    grid = [(task, start, seed) for task in tasks for seed in seeds for start in ("pretrained", "random")]
    with (
        ray_session(address, cpus=cpus or cores(), logs=folder / "ray-logs", report=on_progress),
        stop_signals() as asked,
    ):
        outcomes = _grid(folder, corpus, grid, budget, asked, on_progress)
    comparisons = compare(outcomes)
    if tracked := tracking.known(folder):
        on_progress({"stage": "logging to MLflow"})
        for each in comparisons:
            with tracking.log_and_suppress(f"the scores of {each.task}"):
                _track(tracked, each, budget)
    return comparisons


def _track(tracked: tracking.Tracked, compared: "Comparison", budget: "Budget") -> None:
    scores = {"pretrained": compared.pretrained, "random": compared.random}
    figure = figures.comparison(f"{compared.task}, {budget.labels} labels", scores, compared.chance)
    accuracies = {f"{start}_accuracy": values for start, values in scores.items()}
    tracking.log_eval(
        tracked, f"eval/{compared.task}", asdict(budget) | {"chance": compared.chance}, accuracies, figure
    )


def _grid(
    folder: Path,
    corpus: Path,
    grid: Sequence[tuple[str, Any, int]],
    budget: "Budget",
    asked: Asked,
    on_progress: Report,
) -> list["Outcome"]:
    """The cells in order, done as Ray has room for them; a task for which the text is too small is left out."""
    import ray

    cell = ray.remote(finetune_one).options(**ONE_CORE)
    on_progress({"stage": "loading workers", "fine-tunings": len(grid)})
    with tempfile.TemporaryDirectory(dir=folder, prefix=".steps-", ignore_cleanup_errors=True) as counts:
        files = [Path(counts) / str(number) for number in range(len(grid))]
        cells = [cell.remote(folder, corpus, *each, budget, file) for each, file in zip(grid, files, strict=True)]
        task_of = dict(zip(cells, (task for task, *_ in grid), strict=True))
        unfit: dict[str, DataError] = {}
        waiting, together = list(task_of), FineTunings(len(cells), budget.steps, on_progress)
        while waiting:
            done, waiting = ray.wait(waiting, timeout=POLL_S)
            if asked.signal:
                raise asked.stopped(f"{folder}: stopped with {len(waiting)} of {len(grid)} fine-tunings to do")
            for future in done:
                if error := _fault(future):
                    unfit[task_of[future]] = error
            at_work = [file for future, file in zip(cells, files, strict=True) if future in waiting]
            if len(at_work) < len(cells) or any(file.exists() for file in at_work):
                together.at(len(cells) - len(waiting), sum(_counted(file) for file in at_work))
    if len(unfit) == len(set(task_of.values())):
        raise next(iter(unfit.values()))
    for error in unfit.values():
        log.warning("left out: %s", error)
    return ray.get([future for future, task in task_of.items() if task not in unfit])


def _counted(file: Path) -> int:
    """The steps that a fine-tuning has written down; 0 where it has not begun, or is just writing."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def _fault(future: Any) -> DataError | None:
    """What is wrong with the data of a finished fine-tuning; any other error is raised."""
    import ray
    from ray.exceptions import RayTaskError, WorkerCrashedError

    try:
        ray.get(future)
    except RayTaskError as error:
        if isinstance(error.cause, DataError):
            return error.cause
        raise error.cause if isinstance(error.cause, SesameError) else error from None
    except WorkerCrashedError as error:
        raise ResourceError("a fine-tuning died each time it was tried; is memory short (dmesg)?") from error
    return None


def alone(task: Callable[..., T], *arguments: Any) -> T:
    """What `task` returns, in a process of its own with one core, on the Ray that this process is connected to."""
    import ray

    future = ray.remote(task).options(**ONE_CORE).remote(*arguments)
    if error := _fault(future):
        raise error
    return ray.get(future)


def cores() -> int:
    """Those of this machine that this process may use."""
    return len(os.sched_getaffinity(0))

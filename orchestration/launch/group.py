"""Ray: a group of workers that trains one run and is started again when one of them dies.

Plain actors in a placement group, not ray.train.TorchTrainer: a restart is fresh processes that look for the newest
whole checkpoint themselves, where Ray Train goes back to the last one its controller had polled (every two seconds); an
error of ours arrives as itself; SIGTERM ends in a checkpoint. Ray is left with what it is best at: placing processes on
one machine or many, and noticing that one is gone.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from orchestration import figures, tracking
from orchestration.launch.attempt import Attempt, find_newest_step
from orchestration.launch.nodes import Nodes, WorkerRequirements, watch_nodes
from orchestration.launch.out_of_memory import OutOfMemory
from orchestration.launch.placement import NODES_S, WorkerGroup, place_workers
from orchestration.launch.session import find_fault, is_ours, ray_session, renew
from orchestration.launch.worker import EXPORT
from orchestration.launch.worker_errors import NodeDied, WorkerDied, WorkersDisconnected
from orchestration.progress import Report, ignore_progress
from orchestration.signals import StopRequest, signals_raise, stop_signals
from preprocessing import limits
from preprocessing.errors import Preempted, ResourceError, SesameError
from preprocessing.files import parse_json, remove_unfinished, write_atomic
from preprocessing.lock import is_abandoned, kill_abandoned
from training.run import Run, write_run

if TYPE_CHECKING:  # torch is for the workers
    from training.loop import TrainingResult

log = logging.getLogger(__name__)
T = TypeVar("T")

ONE_CORE: dict[str, Any] = {"num_cpus": 1, "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}}}
RESTARTS = "restarts.json"  # in the run folder: how often workers had to be started again, by all commands so far
SLOWEST = 2**20  # bytes per second at which a model is sent to a store
LEFT_S = 60.0  # for workers of a driver that was killed to end
ENDED_S = 3.0  # for our own
NOTICED_S = 25.0  # for Ray to say that a node is gone: it took 17 to 19 (benchmarks/results/recovery-2026-11-25.md)
NONE: Mapping[str, str] = MappingProxyType({})
STOPPED = (Preempted, KeyboardInterrupt)  # what a run that was asked to stop ends with


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """How often, and when, a group of workers begins again."""

    max_restarts: int = 3  # in a row, without progress in between
    hang_s: float = 600.0  # without a step (watch.py); 0: for ever
    grow_s: float = 600.0  # between two stops to go on with more workers; 0: none


def pretrain(
    run: Run,
    *,
    workers: int,
    cpus: int = 1,
    gpus: int = 0,
    fewest: int = 0,
    place: tracking.TrackingStore,
    metadata: tracking.Metadata,
    address: str = "",
    patience: RestartPolicy = RestartPolicy(),
    env: Mapping[str, str] = NONE,
    dashboard: bool = False,
    on_progress: Report = ignore_progress,
    asked: StopRequest | None = None,
) -> "TrainingResult":
    """Train `run` with `workers` processes, track it, export its weights; the result of the first worker.

    A worker that dies, or a group that is silent for `patience.hang_s` (watch.py), costs a restart of all from the
    newest checkpoint; too many without progress in between raise ResourceError. Where nodes of a cluster are gone, a
    run that has a checkpoint goes on with `fewest` workers or more (0: with all), and with more as soon as they have
    room. SIGTERM and SIGINT end in a checkpoint, where steps were done, then in Preempted or KeyboardInterrupt; a
    second one does not wait. BadInput and Diverged come from the workers as they are. A caller that listens to signals
    itself gives `asked`, and holds the lock of the run's folder in any case.
    """
    folder = Path(run.folder)
    needs = WorkerRequirements(
        workers=workers, cpus=cpus, gpus=gpus, fewest=min(fewest, workers), unit=run.engine.workers_unit
    )
    with signals_raise(lambda: f"{folder}: stopped while workers of an earlier command were ending"):
        _wait_for_earlier_workers(folder, on_progress)
    if run.resume == "never":
        _set_aside(folder)
    tracking.history(folder)  # it is whole, or nothing begins
    write_run(run)
    now = _Now(on_progress)
    with (
        _none_left(folder),
        signals_raise(lambda: f"{folder}: stopped while {now.stage}"),
        _as_stage(now, "opening MLflow", tracking.run(place, folder, Path(run.corpus), metadata)) as tracked,
        ray_session(
            address, cpus=workers * cpus, gpus=workers * gpus, dashboard=dashboard, logs=folder / "ray-logs", report=now
        ),
    ):
        now({"stage": "starting workers"})
        with nullcontext(asked) if asked else stop_signals() as asked:
            remove_unfinished(folder)  # what was left by a start that was killed
            with nullcontext() if is_ours() else watch_nodes(needs) as nodes:
                result = Training(run, needs, env, tracked, asked, patience, nodes, now).result()
            now({"stage": "logging to MLflow"})
            log_results(folder, tracked, result.finished, now)
            if not result.finished:
                raise asked.stopped(f"{folder}: stopped after step {result.state.step:,} of {run.steps:,}")
    return result


def log_results(folder: Path, tracked: tracking.TrackedRun, finished: bool, report: Report = ignore_progress) -> None:
    """Keep the figures of a run in MLflow, and its net where it is finished; what it does not take is noted. The last
    points of its metrics come first, where the first worker was ended, or gave up, before they were there."""
    with tracking.log_and_suppress("the last of the metrics"):
        if not (
            tracking.pending_updates(folder).get("points") and tracking.explain_missing_run(tracked)
        ):  # which was said
            tracking.MetricLog(folder, tracked, system=False).close(report)
    with tracking.log_and_suppress("figures and model; the same command again logs them"):
        tracking.add_pending(folder, results=finished)
        drawn = figures.plot_training(tracking.history(folder))
        tracking.wait_while_available(tracked.uri, partial(tracking.log_figures, tracked, drawn))
        if finished and (export := folder / EXPORT).is_dir():
            most_s = tracking.MOST_S + _size(export) / SLOWEST
            tracking.wait_while_available(tracked.uri, partial(tracking.log_model, tracked, export), most_s)
        tracking.clear_pending(folder, "results")


def _size(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _wait_for_earlier_workers(folder: Path, report: Report) -> None:
    """End workers whose driver was killed, and wait for those of other machines: Ray ends them, within seconds, and
    until then they write to the folder.

    ResourceError where they are still there after LEFT_S.
    """
    until_s = time.monotonic() + LEFT_S
    while not is_abandoned(folder):
        report({"stage": "waiting for earlier workers"})
        if ended := kill_abandoned(folder):
            log.warning("%s: ended workers of an earlier command, which has ended without them: %s", folder, ended)
        if time.monotonic() > until_s:
            raise ResourceError(
                f"{folder}: workers of an earlier command are at work in it, though that has ended; end them "
                "(`ray list actors`, or `ray stop` on their machines) and repeat the command"
            )
        time.sleep(0.2)


@contextmanager
def _none_left(folder: Path) -> Iterator[None]:
    """When the block is left, its workers have ended, or are about to."""
    try:
        yield
    finally:
        until_s = time.monotonic() + ENDED_S
        while not is_abandoned(folder) and time.monotonic() < until_s:
            time.sleep(0.05)


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
    """Begin the record anew, as the loop does with the checkpoints (`resume: never`): old-..., old2-..., and so on."""
    names = (tracking.RUN_FILE, tracking.METRICS_FILE, tracking.BEHIND, RESTARTS)
    olds = (f"old{number}-" if number > 1 else "old-" for number in count(1))
    old = next(old for old in olds if not any((folder / f"{old}{name}").exists() for name in names))
    for name in names:
        if (folder / name).exists():
            os.replace(folder / name, folder / f"{old}{name}")


# A group of workers


class Training:
    """One run by groups of workers, one after the other, as long as that leads on."""

    def __init__(
        self,
        run: Run,
        needs: WorkerRequirements,
        env: Mapping[str, str],
        tracked: tracking.TrackedRun,
        asked: StopRequest,
        patience: RestartPolicy,
        nodes: Nodes | None,
        on_progress: Report,
    ) -> None:
        self.run, self.needs, self.tracked, self.asked = run, needs, tracked, asked
        self.env = env
        self.patience, self.nodes, self.on_progress = patience, nodes, on_progress
        self.furthest, self.in_vain = -1, 0
        self.worlds: list[str] = []  # what it was trained with, and from which step on

    def result(self) -> "TrainingResult":
        """What the first worker returned at the end. ResourceError where workers die and nothing leads on."""
        with ExitStack() as room:
            group: WorkerGroup | None = None
            while True:
                attempt: Attempt | None = None
                try:
                    group = group or room.enter_context(self._placed())
                    self._tell_world(group)
                    attempt = Attempt(group, self.run, self.tracked, self.asked, self.patience.hang_s, self.on_progress)
                    attempt.may_grow(self.needs, self.nodes, self.patience.grow_s)
                    result = attempt.result()
                    if result.finished or self.asked.signal:
                        return result
                    log.warning("going on with more workers than %d after step %d", group.num, result.state.step)
                except WorkerDied as death:
                    self._count(self._explained(death, group))
                never = self.run.resume == "never"  # that was said of the first start
                self.run = replace(self.run, resume="allow") if never else self.run
                lost = find_fault()
                if lost or (attempt and attempt.grows) or (self.nodes and group and self.nodes.gone(group.nodes)):
                    room.close()
                    group = None
                    if lost:
                        self._renew()

    def _renew(self) -> None:
        """A new Ray in place of the one that is gone, which may take minutes: a signal ends the wait."""
        said = f"{self.run.folder}: stopped while Ray was started again"
        if self.asked.signal:
            raise self.asked.stopped(said)
        with signals_raise(lambda: said):
            renew()

    def _placed(self) -> AbstractContextManager[WorkerGroup]:
        """Room for as many workers as there may be: for all at the beginning of a run."""
        begun = bool(self.worlds) or (self.run.resume != "never" and find_newest_step(Path(self.run.folder)) > 0)
        needs = self.needs if begun else replace(self.needs, fewest=0)
        wait_s = NODES_S if begun and self.nodes else None
        return place_workers(needs, self.run.engine, self.env, self.asked, self.nodes, wait_s, self.on_progress)

    def _explained(self, death: WorkerDied, group: WorkerGroup | None) -> WorkerDied:
        """Where a worker died before anything was learned: that its node is gone, if Ray says so within NOTICED_S.

        Until then Ray gives workers to that node, which die one after another.
        """
        if not (self.nodes and group) or isinstance(death, NodeDied) or death.step > self.furthest:
            return death
        self.on_progress({"stage": "asking Ray whether a node is gone"})
        until_s = time.monotonic() + NOTICED_S
        while time.monotonic() < until_s and not self.asked.signal:
            if gone := self.nodes.gone(group.nodes):
                return NodeDied(f"{gone} is gone", death.step)
            time.sleep(0.1)
        return death

    def _count(self, death: WorkerDied) -> None:
        """Take note of a death; raise where it was one too many, or the run was to stop."""
        folder = self.run.folder
        if not isinstance(death, NodeDied):  # of these there are as many as nodes
            self.in_vain = 0 if death.step > self.furthest else self.in_vain + 1
        self.furthest = max(self.furthest, death.step)
        step = death.step or self.furthest  # where they had no place yet
        if self.asked.signal:
            raise self.asked.stopped(f"{folder}: {death} while it was to stop") from death
        if self.in_vain >= self.patience.max_restarts:
            said = f"{folder}: {death} after step {step}, {self.in_vain + 1} times without progress"
            if death.memory and self.run.engine.device == "cpu":
                said += f", with micro_tokens {self.run.engine.micro_batch_tokens:,}"
                raise OutOfMemory(said, death.memory.own, death.memory.limit) from death
            if death.memory:
                raise ResourceError(f"{said}; it is the host's memory: lower loader_workers of the cluster") from death
            if isinstance(death, WorkersDisconnected):
                raise ResourceError(f"{said}; see the network between their machines") from death
            raise ResourceError(f"{said}; if memory ran out (see dmesg), lower micro_tokens of the cluster") from death
        log.warning("%s after step %d; starting again from the newest checkpoint", death, step)
        tracking.log_tags(self.tracked, Path(folder), restarts=_one_more(Path(folder) / RESTARTS))

    def _tell_world(self, group: WorkerGroup) -> None:
        """Keep in MLflow with how many workers it goes on, and went on before."""
        said = f"{group.num} from step {find_newest_step(Path(self.run.folder)) if self.worlds else 0}"
        if self.nodes and (not self.worlds or self.worlds[-1].split()[0] != said.split()[0]):
            self.worlds.append(said)
            if len(self.worlds) > 1 or group.num < self.needs.workers:
                worlds = ", ".join(self.worlds)
                tracking.log_tags(
                    self.tracked, Path(self.run.folder), num_workers=group.num, num_workers_history=worlds
                )


def _one_more(file: Path) -> int:
    """The number in a file, which is one more from now on; a damaged one begins anew."""
    try:
        number = int(parse_json(file.read_bytes())) + 1
    except (OSError, ValueError, TypeError):
        number = 1
    with suppress(OSError):
        write_atomic(file, json.dumps(number).encode())
    return number


# One task


def run_alone(task: Callable[..., T], *arguments: Any) -> T:
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
    """Those that this process may use, at least one: by affinity and quota, and as far as there is memory for a
    process on each."""
    return limits.processes()

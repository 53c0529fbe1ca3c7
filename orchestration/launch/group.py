"""Trains one run with a group of Ray workers, and restarts the group if a worker dies.

The workers are plain actors in a placement group. This has three advantages over ray.train.TorchTrainer:
- A restart starts new processes, which search for the newest complete checkpoint themselves. Ray Train resumes from the
  last checkpoint that its controller has polled, every two seconds.
- An error of Sesame keeps its type.
- After SIGTERM the workers save a checkpoint.

Ray places processes on one machine or many, and detects that a process is gone.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from orchestration import figures, trackers, tracking
from orchestration.launch.attempt import Attempt, find_newest_step
from orchestration.launch.layouts import LAYOUTS, Layout, LayoutHistory, tags_of
from orchestration.launch.nodes import GrowthTrigger, Nodes, WorkerRequirements, watch_nodes
from orchestration.launch.out_of_memory import OutOfMemory
from orchestration.launch.placement import NODES_S, WorkerGroup, place_workers
from orchestration.launch.session import find_fault, is_ours, ray_session, renew
from orchestration.launch.worker import EXPORT
from orchestration.launch.worker_errors import PROCESS_DIED, NodeDied, WorkerDied, WorkersDisconnected
from orchestration.progress import Report, ignore_progress
from orchestration.signals import StopRequest, signals_raise, stop_signals
from preprocessing import limits
from preprocessing.errors import Preempted, ResourceError, SesameError
from preprocessing.files import parse_json, remove_unfinished, write_atomic
from preprocessing.lock import is_abandoned, kill_abandoned
from training.run import Run, write_run

if TYPE_CHECKING:  # only the workers import torch
    from training.state import TrainingResult

log = logging.getLogger(__name__)
T = TypeVar("T")

ONE_CORE: dict[str, Any] = {"num_cpus": 1, "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}}}
RESTARTS = "restarts.json"  # file in the run directory: number of restarts of the workers, over all commands
SLOWEST = 2**20  # bytes per second: the slowest accepted upload of a model to a tracking store
LEFT_S = 60.0  # timeout for the end of the workers of a killed driver
ENDED_S = 3.0  # timeout for the end of our own workers
NOTICED_S = 25.0  # timeout for the report of a lost node, after 17 to 19 s (benchmarks/results/recovery-2026-11-25.md)
NONE: Mapping[str, str] = MappingProxyType({})
STOPPED = (Preempted, KeyboardInterrupt)  # raised when a run ends after a stop request


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """When a group of workers is restarted, and how often."""

    max_restarts: int = 3  # maximum restarts in a row without progress
    hang_s: float = 600.0  # longest step without progress (heartbeat.py); 0: unlimited
    grow_s: float = 600.0  # interval between two stops to continue with more workers; 0: never stop for this


def pretrain(
    run: Run,
    *,
    num_workers: int,
    cpus: int = 1,
    gpus: int = 0,
    min_workers: int = 0,
    place: tracking.TrackingStore,
    metadata: tracking.Metadata,
    address: str = "",
    restart_policy: RestartPolicy = RestartPolicy(),
    env: Mapping[str, str] = NONE,
    other_trackers: Sequence[str] = (),
    dashboard: bool = False,
    on_progress: Report = ignore_progress,
    stop_request: StopRequest | None = None,
    store_result: Callable[["TrainingResult"], object] | None = None,
) -> "TrainingResult":
    """Train `run` with `num_workers` processes, track it, export its weights; return the result of the first worker.

    `store_result` receives the result of a finished training before its model is logged, whose card shows it.

    If a worker dies, or no worker makes progress for `restart_policy.hang_s`, all workers restart from the newest
    checkpoint. Too many restarts without progress raise ResourceError. If nodes of a cluster are lost, a run with a
    checkpoint continues with at least `min_workers` workers (0: all of them). It continues with more workers as soon as
    there is room.

    After SIGTERM or SIGINT, the workers save a checkpoint if an update was done; then Preempted or KeyboardInterrupt is
    raised. A second signal raises it at once. BadInput and Diverged of a worker are raised unchanged. A caller that
    handles signals itself passes `stop_request`. `other_trackers` are the names of trackers beside MLflow. Every caller
    must hold the lock of the run directory.
    """
    folder = Path(run.folder)
    needs = WorkerRequirements(
        num_workers=num_workers,
        cpus=cpus,
        gpus=gpus,
        min_workers=min(min_workers, num_workers),
        unit=run.engine.workers_unit,
    )
    with signals_raise(lambda: f"{folder}: stopped while workers of an earlier command were ending"):
        _wait_for_earlier_workers(folder, on_progress)
    if run.resume == "never":
        _set_aside(folder)
    tracking.history(folder)  # raises if the metrics file is damaged
    step = find_newest_step(folder) if run.resume != "never" else 0
    LayoutHistory(folder).check_precision(step, run.engine.precision)  # the same for the history of layouts
    write_run(run)
    _write_trackers(folder, other_trackers, metadata)
    report = _StageReport(on_progress)
    with (
        _wait_for_own_workers(folder),
        signals_raise(lambda: f"{folder}: stopped while {report.stage}"),
        _as_stage(report, "opening MLflow", tracking.run(place, folder, Path(run.corpus), metadata)) as tracked,
        ray_session(
            address,
            cpus=num_workers * cpus,
            gpus=num_workers * gpus,
            dashboard=dashboard,
            logs=folder / "ray-logs",
            report=report,
        ),
    ):
        report({"stage": "starting workers"})
        origin = {"command": str(metadata.tags.get("command", "")), "cluster": metadata.files.get("cluster.yaml", "")}
        with nullcontext(stop_request) if stop_request else stop_signals() as request:
            remove_unfinished(folder)  # files of a command that was killed
            with nullcontext() if is_ours() else watch_nodes(needs) as nodes:
                result = Training(run, needs, env, tracked, request, restart_policy, nodes, report, origin).result()
            if result.finished and store_result is not None:
                store_result(result)
            log_results(folder, tracked, result.finished, report)
            if not result.finished:
                raise request.make_exception(f"{folder}: stopped after step {result.state.step:,} of {run.steps:,}")
    return result


def log_results(folder: Path, tracked: tracking.TrackedRun, finished: bool, report: Report = ignore_progress) -> None:
    """Log the figures of a run to MLflow, and its model if it is finished.

    Data that MLflow rejects is logged by a later command. The last metrics are logged first, in case the first worker
    ended before it had logged them.
    """
    with tracking.log_and_suppress("the last metrics"):
        if not (
            tracking.pending_updates(folder).get("points") and tracking.explain_missing_run(tracked)
        ):  # otherwise the first worker has logged why they are missing
            tracking.MetricLog(folder, tracked, system=False).close(report)
    report({"stage": "logging to MLflow"})
    with tracking.log_and_suppress("figures and model; repeat the command to log them"):
        tracking.add_pending(folder, results=finished)
        plots = figures.plot_training(tracking.history(folder))
        tracking.wait_while_available(tracked.uri, partial(tracking.log_figures, tracked, plots))
        if finished and (export := folder / EXPORT).is_dir():
            most_s = tracking.MOST_S + _size(export) / SLOWEST
            tracking.wait_while_available(tracked.uri, partial(tracking.log_model, tracked, export), most_s)
        tracking.clear_pending(folder, "results")


def _write_trackers(folder: Path, names: Sequence[str], metadata: tracking.Metadata) -> None:
    """Store the trackers of a run beside MLflow, with its name, parameters and description."""
    chosen = [tracker.kind for tracker in trackers.select_trackers(names)]
    params = tracking.flatten_params(metadata.params)
    trackers.write_setup(folder, chosen, tracking.run_name(metadata.name, folder), params, metadata.note)


def _size(folder: Path) -> int:
    """Total bytes of the files in a directory."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _wait_for_earlier_workers(folder: Path, report: Report) -> None:
    """Kill workers on this machine whose driver was killed, and wait until those on other machines have ended.

    Ray ends them within seconds; until then they write to the run directory. Raises ResourceError if some of them still
    run after LEFT_S.
    """
    until_s = time.monotonic() + LEFT_S
    while not is_abandoned(folder):
        report({"stage": "waiting for earlier workers"})
        if killed := kill_abandoned(folder):
            log.warning("%s: ended processes %s, workers of an earlier command that is gone", folder, killed)
        if time.monotonic() > until_s:
            raise ResourceError(
                f"{folder}: workers of an ended command still use this directory; end them "
                "(`ray list actors`, or `ray stop` on their machines) and repeat the command"
            )
        time.sleep(0.2)


@contextmanager
def _wait_for_own_workers(folder: Path) -> Iterator[None]:
    """After the block, wait up to ENDED_S until its workers have ended."""
    try:
        yield
    finally:
        until_s = time.monotonic() + ENDED_S
        while not is_abandoned(folder) and time.monotonic() < until_s:
            time.sleep(0.05)


class _StageReport:
    """A report function that stores the current stage."""

    def __init__(self, report: Report) -> None:
        self.report, self.stage = report, "starting"

    def __call__(self, event: Mapping[str, Any]) -> None:
        self.stage = event["stage"]
        self.report(event)


@contextmanager
def _as_stage(report: Report, stage: str, context: AbstractContextManager[T]) -> Iterator[T]:
    """Report a stage, then enter the context."""
    report({"stage": stage})
    with context as value:
        yield value


def _set_aside(folder: Path) -> None:
    """Rename the records of an earlier run to old-..., old2-..., and so on (`resume: never`).

    The training loop does the same with the checkpoints.
    """
    names = (tracking.RUN_FILE, tracking.METRICS_FILE, tracking.BEHIND, RESTARTS, LAYOUTS, *trackers.FILES)
    prefixes = (f"old{number}-" if number > 1 else "old-" for number in count(1))
    prefix = next(old for old in prefixes if not any((folder / f"{old}{name}").exists() for name in names))
    for name in names:
        if (folder / name).exists():
            os.replace(folder / name, folder / f"{prefix}{name}")


# The groups of workers of a run


class Training:
    """Trains one run with groups of workers, one after another, until it is finished or stopped."""

    def __init__(
        self,
        run: Run,
        needs: WorkerRequirements,
        env: Mapping[str, str],
        tracked: tracking.TrackedRun,
        stop_request: StopRequest,
        restart_policy: RestartPolicy,
        nodes: Nodes | None,
        on_progress: Report,
        origin: Mapping[str, str] = NONE,
    ) -> None:
        """`origin`: the command and the cluster file of the run, for the history of its layouts."""
        self.run, self.needs, self.tracked, self.stop_request = run, needs, tracked, stop_request
        self.env = env
        self.restart_policy, self.nodes, self.on_progress = restart_policy, nodes, on_progress
        self.furthest, self.failures = -1, 0  # highest step so far; deaths in a row without progress
        self.layouts, self.has_begun = LayoutHistory(Path(run.folder), origin), False

    def result(self) -> "TrainingResult":
        """Train and return the result of the first worker. Raises ResourceError if workers die again and again."""
        with ExitStack() as room:
            group: WorkerGroup | None = None
            while True:
                attempt: Attempt | None = None
                try:
                    group = group or room.enter_context(self._place())
                    self._log_layout(group)
                    attempt = self._attempt(group)
                    result = attempt.result()
                    if result.finished or self.stop_request.signal:
                        return result
                    log.warning("continuing with more workers than %d after step %d", group.num, result.state.step)
                except WorkerDied as death:
                    self._count_death(self._explain_death(death, group))
                is_new = self.run.resume == "never"  # a restart uses the new checkpoints of this run
                self.run = replace(self.run, resume="allow") if is_new else self.run
                fault = find_fault()
                is_node_missing = self.nodes and group and self.nodes.describe_missing(group.nodes)
                if fault or (attempt and attempt.state.is_growing) or is_node_missing:
                    room.close()
                    group = None
                    if fault:
                        self._renew()

    def _attempt(self, group: WorkerGroup) -> Attempt:
        growth = None
        if self.nodes and self.restart_policy.grow_s:
            growth = GrowthTrigger(self.needs, self.nodes, group.num, time.monotonic() + self.restart_policy.grow_s)
        hang_s, report = self.restart_policy.hang_s, self.on_progress
        return Attempt(group, self.run, self.tracked, self.stop_request, hang_s, report, self.nodes, growth)

    def _renew(self) -> None:
        """Start our own Ray again after it died. This may take minutes, and a signal ends the wait."""
        message = f"{self.run.folder}: stopped while Ray was started again"
        if self.stop_request.signal:
            raise self.stop_request.make_exception(message)
        with signals_raise(lambda: message):
            renew()

    def _place(self) -> AbstractContextManager[WorkerGroup]:
        """Resources for all workers at the start of a run; later, for as many workers as are allowed and fit."""
        has_started = self.has_begun or (self.run.resume != "never" and find_newest_step(Path(self.run.folder)) > 0)
        needs = self.needs if has_started else replace(self.needs, min_workers=0)
        wait_s = NODES_S if has_started and self.nodes else None
        return place_workers(needs, self.run.engine, self.env, self.stop_request, self.nodes, wait_s, self.on_progress)

    def _explain_death(self, death: WorkerDied, group: WorkerGroup | None) -> WorkerDied:
        """Replace a death without progress by NodeDied, if Ray reports within NOTICED_S that a node is gone.

        Until this report, Ray starts new workers on that node, and they die one after another.
        """
        if not (self.nodes and group) or isinstance(death, NodeDied) or death.step > self.furthest:
            return death
        self.on_progress({"stage": "checking whether a node is gone"})
        until_s = time.monotonic() + NOTICED_S
        while time.monotonic() < until_s and not self.stop_request.signal:
            if missing := self.nodes.describe_missing(group.nodes):
                return NodeDied(f"{missing} is gone", death.step)
            time.sleep(0.1)
        return death

    def _count_death(self, death: WorkerDied) -> None:
        """Count a death. Raises if there were too many deaths without progress, or after a stop request."""
        folder = self.run.folder
        if not isinstance(death, NodeDied):  # a cluster cannot lose more nodes than it has
            self.failures = 0 if death.step > self.furthest else self.failures + 1
        self.furthest = max(self.furthest, death.step)
        step = death.step or self.furthest  # 0: it died while the workers were placed
        if self.stop_request.signal:
            raise self.stop_request.make_exception(f"{folder}: {death} while the run was stopping") from death
        if self.failures >= self.restart_policy.max_restarts:
            message = f"{folder}: {death} after step {step}, {self.failures + 1} times without progress"
            engine = self.run.engine
            if death.memory and engine.device == "cpu":
                message += f", with cluster.engine.micro_batch_tokens {engine.micro_tokens:,}"
                raise OutOfMemory(message, death.memory.process, death.memory.limit) from death
            if death.memory:
                advice = "the memory of the host is exhausted: lower cluster.engine.dataloader_num_workers"
            elif isinstance(death, WorkersDisconnected):
                advice = "check the network between their machines"
            else:
                tokens = f"{engine.micro_tokens:,}"
                advice = f"if memory ran out (see dmesg), lower cluster.engine.micro_batch_tokens, which is {tokens}"
            raise ResourceError(f"{message}; {advice}") from death
        log.warning("%s after step %d; restarting from the newest checkpoint", death, step)
        tracking.log_tags(self.tracked, Path(folder), restarts=_increment(Path(folder) / RESTARTS))

    def _log_layout(self, group: WorkerGroup) -> None:
        """Record the layout of a group with the step at which it begins, and log the history to MLflow."""
        folder = Path(self.run.folder)
        is_new = self.run.resume == "never" and not self.has_begun  # its checkpoints belong to the earlier run
        step = 0 if is_new else find_newest_step(folder)
        self.has_begun = True
        try:
            periods = self.layouts.add(step, Layout.of(self.run.engine, group.num))
            text = (folder / LAYOUTS).read_text(encoding="utf-8")
        except OSError as error:
            log.warning("%s: lacks the current layout (%s)", folder / LAYOUTS, error.strerror)
            return
        if tags := tags_of(periods, self.needs.num_workers):
            tracking.log_tags(self.tracked, folder, {LAYOUTS: text}, **tags)


def _increment(file: Path) -> int:
    """Increment the number in a file and return it; a missing or damaged file counts as 0."""
    try:
        number = int(parse_json(file.read_bytes())) + 1
    except (OSError, ValueError, TypeError):
        number = 1
    with suppress(OSError):
        write_atomic(file, json.dumps(number).encode())
    return number


# A single task


def run_alone(task: Callable[..., T], *arguments: Any) -> T:
    """Run `task` in a process with one core on the connected Ray, and return its result."""
    import ray
    from ray.exceptions import RayTaskError, WorkerCrashedError

    try:
        return ray.get(ray.remote(task).options(**ONE_CORE).remote(*arguments))
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, SesameError) else error from None
    except WorkerCrashedError as error:
        raise ResourceError(PROCESS_DIED) from error


def cores() -> int:
    """How many processes may run in parallel: limited by CPU affinity, CPU quota and free memory; at least 1."""
    return limits.processes()

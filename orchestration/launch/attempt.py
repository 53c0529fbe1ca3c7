"""One attempt to train a run with a group of workers: start them, watch them, end them in any case.

No call here waits for a worker that is busy: requests are sent, and answers are collected when they arrive. So the
driver reacts to a signal within seconds, even if a worker is stopped or hangs in a collective call, or Ray is gone.
"""

import logging
import platform
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestration.launch import stacks
from orchestration.launch.heartbeat import HeartbeatMonitor
from orchestration.launch.nodes import GrowthTrigger, Nodes
from orchestration.launch.out_of_memory import MemoryUse, count_oom_kills, describe_oom_kill
from orchestration.launch.placement import WorkerGroup
from orchestration.launch.running_workers import RunningWorkers
from orchestration.launch.session import find_fault
from orchestration.launch.worker import Worker, WorkerStatus
from orchestration.launch.worker_errors import NodeDied, WorkerDied, WorkersDisconnected, describe_disconnect
from orchestration.launch.worker_polls import WorkerPolls
from orchestration.progress import Report
from orchestration.signals import StopRequest
from orchestration.tracking import TrackedRun
from preprocessing.errors import ResourceError, SesameError, explain_missing_module
from preprocessing.files import TEMPORARY, remove_tree, remove_unfinished
from training.run import CHECKPOINTS, Run, step_of, steps

if TYPE_CHECKING:  # only the workers import torch
    from training.state import TrainingResult

log = logging.getLogger(__name__)

POLL_S: Final = 0.5  # interval between two iterations of the driver's loop
START_S: Final = 600  # timeout for the start of all workers; with a cold disk their imports take a minute
GRACE_S: Final = 30.0  # wait after an error in one worker: its cause may be the death of another, reported later
STOP_S: Final = 20.0  # timeout for progress of a worker after a stop request; at least four step times
FINISH_S: Final = 20.0  # timeout for growth of the files of an unfinished checkpoint
MOST_CHARS: Final = 300  # maximum characters shown of an error of Ray, which may have pages
STOPPED_S: Final = 10.0  # a longer iteration of the driver's loop means that the driver itself was stopped (Ctrl-Z)


@dataclass(frozen=True)
class AttemptState:
    """The variable state of an attempt. Each change replaces the whole object."""

    logged: int  # last step whose metrics are logged, or the step of the newest checkpoint
    workers: RunningWorkers = field(default_factory=RunningWorkers)
    # memory use by rank, from the latest answer of each worker
    memory: Mapping[int, MemoryUse] = field(default_factory=dict)
    is_growing: bool = False  # whether the workers were stopped to continue with more of them


class Attempt:
    """New workers that train a run from its newest checkpoint.

    `state`, the heartbeats in `monitor` and the open calls in `polls` change; all other attributes stay.
    """

    def __init__(
        self,
        group: WorkerGroup,
        run: Run,
        tracked: TrackedRun,
        stop_request: StopRequest,
        hang_s: float,
        on_progress: Report,
        nodes: Nodes | None = None,
        growth: GrowthTrigger | None = None,
    ) -> None:
        self.group, self.tracked, self.stop_request, self.on_progress = group, tracked, stop_request, on_progress
        self.nodes, self.growth, self.oom_kills_before = nodes, growth, count_oom_kills()
        self.polls = WorkerPolls(group.num)
        self.monitor = HeartbeatMonitor(
            group.num, hang_s, time.monotonic(), run.engine.pipeline_parallel_size, run.engine.init_timeout_seconds
        )
        self.run = replace(run, engine=replace(run.engine, init_timeout_seconds=self.monitor.timeout_s))
        self.folder = Path(run.folder)
        self.state = AttemptState(find_newest_step(self.folder) if run.resume != "never" else 0)

    @property
    def step(self) -> int:
        """Number of updates known to be done; at least those of the newest checkpoint."""
        return max(self.state.logged, *self.monitor.done.values())

    @property
    def workers(self) -> RunningWorkers:
        """The workers of this attempt."""
        return self.state.workers

    def result(self) -> "TrainingResult":
        """Start the workers and return the result of the first one.

        Raises WorkerDied, or the error of a worker. After a stop request it raises Preempted or KeyboardInterrupt if no
        step was done, or if no worker could save a checkpoint.
        """
        from ray.exceptions import (
            ActorUnschedulableError,
            NodeDiedError,
            OutOfMemoryError,
            RayActorError,
            RayTaskError,
            RuntimeEnvSetupError,
        )

        self.on_progress({"stage": "starting workers", "workers": self.group.num})
        try:
            self._start()
            return self._wait_for_result()
        except (RayActorError, ActorUnschedulableError, NodeDiedError, OutOfMemoryError) as error:
            self._check_nodes(cause=error)
            reason = re.search(r"Worker exit type: (\w+)", str(error))  # SYSTEM_ERROR, NODE_OUT_OF_MEMORY, ...
            dead = self.workers.find_dead()[0] or "a worker"
            raise self._explain_death(dead, str(error), reason[1] if reason else "") from error
        except RayTaskError as error:
            if isinstance(error.cause, SesameError):
                raise error.cause from None
            dead, cause_of_all = self.workers.find_dead(GRACE_S)
            if cause_of_all:
                raise cause_of_all from None
            if dead:
                raise self._explain_death(dead, str(error)) from error
            if bug := self.workers.find_bug():
                raise bug from None
            if reason_text := describe_disconnect(error.cause):
                message = f"a worker lost its connection to the others ({reason_text})"
                raise WorkersDisconnected(message, self.step) from error
            if isinstance(error.cause, ModuleNotFoundError):
                raise ResourceError(f"a worker: {explain_missing_module(error.cause)}") from error
            raise
        except RuntimeEnvSetupError as error:
            message = " ".join(str(error).split())[:MOST_CHARS]
            raise ResourceError(
                f"{self.folder}: Ray cannot prepare a node for the workers ({message}); check the free disk space "
                "there, and run `sesame doctor` there"
            ) from error
        finally:
            try:
                self._poll_last()
                self._finish_checkpoint()
            finally:
                self._end()

    def _explain_death(self, who: str, message: str, reason: str = "") -> WorkerDied:
        """The error for workers that died, with its cause. `message` and `reason` come from Ray."""
        hosts, memory = [worker.process.host for worker in self.workers.started], self.state.memory
        largest = max(memory, key=lambda rank: memory[rank].process, default=-1)
        last = memory.get(largest, MemoryUse())
        kills = count_oom_kills() - self.oom_kills_before if platform.node() in hosts else 0
        because = describe_oom_kill(message, last, kills)
        neighbors = [used for rank, used in memory.items() if hosts[rank] == hosts[largest]]
        part = last.divide_among(neighbors) if because else None
        return WorkerDied(f"{who} died ({because or reason or 'no cause known'})", self.step, part)

    def _start(self) -> None:
        """Start the processes of all workers, then the training. Raises ResourceError if Ray does not start them in
        time."""
        import ray

        workers = RunningWorkers(tuple(self.group.start(Worker)))
        self.state = replace(self.state, workers=workers)
        starts = [actor.start.remote(self.run.folder, self.group.env) for actor in workers.actors]
        until_s, waiting = time.monotonic() + START_S, starts
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=POLL_S)
            ray.get(done)
            self._check_surroundings()
            if time.monotonic() > until_s:
                raise ResourceError(
                    f"{self.folder}: Ray did not start {len(starts)} processes in {START_S} s; run `sesame doctor` to "
                    "find the cause"
                )
        started = tuple(ray.get(starts))
        self.state = replace(self.state, workers=replace(workers, started=started))
        run_json, meeting = self.run.to_json(), started[0].meeting
        results = tuple(actor.train.remote(run_json, meeting, self.tracked) for actor in workers.actors)
        self.state = replace(self.state, workers=replace(self.workers, results=results))

    def _check_surroundings(self) -> None:
        """Raises WorkerDied if Ray or a node of the group is gone.

        Raises Preempted or KeyboardInterrupt if a signal arrived before the first step.
        """
        if fault := find_fault():
            raise WorkerDied(f"{fault} died", self.step)
        self._check_nodes()
        if self.stop_request.signal and max(self.monitor.done.values()) < 0:
            raise self.stop_request.make_exception(f"{self.folder}: stopped before its first step")

    def _check_nodes(self, cause: Exception | None = None) -> None:
        """Raises NodeDied if a node of the group is gone."""
        if self.nodes and (missing := self.nodes.describe_missing(self.group.nodes)):
            raise NodeDied(f"{missing} is gone", self.step) from cause

    def _wait_for_result(self) -> "TrainingResult":
        """Watch the workers until all have returned, and return the result of the first one."""
        import ray

        results = list(self.workers.results)
        waiting, stop_sent_s, turn_s = results, 0.0, time.monotonic()
        while waiting:
            done, waiting = ray.wait(waiting, timeout=POLL_S)
            ray.get(done)
            at_work = [results.index(future) for future in waiting]
            self._poll(at_work)
            self._check_surroundings()
            now_s = time.monotonic()
            if now_s - turn_s > STOPPED_S:
                self.monitor.exclude_gap(now_s - turn_s)
            turn_s = now_s
            if self.stop_request.signal and not stop_sent_s:
                stop_sent_s = now_s
                self.workers.stop()
            elif not self.state.is_growing and self._has_room_to_grow(now_s):
                self.state = replace(self.state, is_growing=True)
                self.workers.stop()
            if stop_sent_s:
                self._check_stopping(at_work, stop_sent_s, now_s)
            if silent_s := self.monitor.silent_s(at_work, now_s):
                raise WorkerDied(self._explain_hang(at_work, silent_s), self.step)
            if comparison := self.monitor.compare(now_s):
                self._report_slow(*comparison)
        return ray.get(results[0])

    def _has_room_to_grow(self, now_s: float) -> bool:
        """Whether there is room for more workers; False until the current workers have done an update."""
        return self.growth is not None and max(self.monitor.done.values()) >= 1 and self.growth.is_due(now_s)

    def _poll(self, at_work: Sequence[int]) -> None:
        """Poll the workers that are due, and handle the answers that have arrived."""
        for rank, status in self.polls.poll(self.workers.actors, at_work):
            self._handle_status(rank, status)

    def _poll_last(self) -> None:
        """Handle the last messages of the first worker, if its training has returned or raised."""
        import ray

        if find_fault() or not self.workers.results or not ray.wait([self.workers.results[0]], timeout=0)[0]:
            return
        for status in self.polls.poll_last(self.workers.actors[0]):
            self._handle_status(0, status)

    def _handle_status(self, rank: int, status: WorkerStatus) -> None:
        self.monitor.record(rank, status.heartbeat, time.monotonic())
        self.state = replace(self.state, memory={**self.state.memory, rank: status.memory})
        if rank:
            return
        self.state = replace(self.state, logged=max(self.state.logged, status.step))
        for name, level, message in status.warnings:
            logging.getLogger(name).log(level, message)
        for event in status.events:
            self.on_progress(event)

    # Workers without progress

    def _check_stopping(self, at_work: Sequence[int], stop_sent_s: float, now_s: float) -> None:
        """Raises Preempted or KeyboardInterrupt if workers cannot act on the stop request.

        Then the run can only resume from the newest checkpoint.
        """
        unresponsive = self.polls.unresponsive(at_work, now_s, stop_sent_s)
        is_idle = self.monitor.idle_s(at_work, now_s) > max(STOP_S, 4 * self.monitor.step_s())
        if unresponsive or (is_idle and now_s - stop_sent_s > STOP_S):
            who = " and ".join(f"worker {rank}" for rank in unresponsive) or "workers"
            raise self.stop_request.make_exception(
                f"{self.folder}: stopped after step {self.step} without a checkpoint of this step, because {who} did "
                "not answer"
            )

    def _explain_hang(self, at_work: Sequence[int], silent_s: float) -> str:
        """Save the stacks of the workers and describe which of them hang."""
        log.warning("%s: no worker has made progress for %.0f s; saving their stacks", self.folder, silent_s)
        states = self.workers.save_stacks(self.folder, at_work)
        unresponsive = [
            f"worker {rank} ({self.workers.started[rank].process}) does not answer, its state is {state}"
            for rank, state in states.items()
        ]
        done = ", ".join(f"worker {rank} {count}" for rank, count in self.monitor.done.items() if rank in at_work)
        who = " and ".join(unresponsive) or f"no worker made progress (updates done: {done})"
        return f"{who} for {silent_s:.0f} s; the stacks are in {self.folder / stacks.FOLDER}; the workers were ended"

    def _report_slow(self, slowest: float, slow: Mapping[int, float]) -> None:
        """Log the ratio of the slowest worker as a metric, and warn about each slow worker."""
        self.workers.actors[0].log_metrics.remote({"perf/slowest_worker_ratio": slowest})
        for rank, ratio in slow.items():
            log.warning(
                "worker %d (%s) is slow: batches and forward passes take it %.1f times as long as the median worker",
                rank, self.workers.started[rank].process, ratio,
            )  # fmt: skip

    # The end

    def _finish_checkpoint(self) -> None:
        """Make the workers finish the checkpoint that they are writing. Wait until its files stop growing."""
        import ray

        if find_fault() or not self.workers.started or not _measure_unfinished(self.folder):
            return
        ranks = range(self.group.num)
        unresponsive = self.polls.unresponsive(ranks, time.monotonic())
        if 0 in unresponsive:  # only the first worker can complete a checkpoint
            return
        self.on_progress({"stage": "finishing the checkpoint"})
        calls = self.workers.finish_checkpoint([rank for rank in ranks if rank not in unresponsive])
        sizes, since_s = _measure_unfinished(self.folder), time.monotonic()
        while not ray.wait([calls[0]], timeout=0.1)[0] and time.monotonic() - since_s < FINISH_S:
            if (now := _measure_unfinished(self.folder)) != sizes:
                sizes, since_s = now, time.monotonic()

    def _end(self) -> None:
        """Kill the workers, and remove unfinished files."""
        self.workers.kill()
        stacks.remove_empty(self.folder)
        for unfinished in (self.folder / CHECKPOINTS).glob(f"{TEMPORARY}*"):
            with suppress(OSError):
                remove_tree(unfinished)
        remove_unfinished(self.run.folder)


def _measure_unfinished(folder: Path) -> dict[str, int]:
    """Size in bytes of each file of the unfinished checkpoints."""
    sizes = dict[str, int]()
    for path in (folder / CHECKPOINTS).glob(f"{TEMPORARY}*/*"):
        with suppress(OSError):
            sizes[str(path)] = path.stat().st_size
    return sizes


def find_newest_step(folder: Path) -> int:
    """The step of the newest checkpoint of a run, complete or not; 0 if there is none."""
    return max(map(step_of, steps(folder / CHECKPOINTS)), default=0)

"""One start of a group of workers: they begin, are watched, and end, whatever they do.

No call here waits for a worker that works: what was asked of one is looked at when it answers. So a signal is acted
upon within seconds where a worker is stopped, hangs in a collective call, or its Ray is gone.
"""

import logging
import math
import platform
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orchestration.launch import processes, stacks
from orchestration.launch.heartbeat import HeartbeatMonitor
from orchestration.launch.nodes import Nodes, StableSince, WorkerRequirements
from orchestration.launch.out_of_memory import MemoryUse, count_oom_kills, describe_oom_kill
from orchestration.launch.placement import WorkerGroup
from orchestration.launch.session import find_fault
from orchestration.launch.worker import StartedWorker, Worker, WorkerStatus
from orchestration.launch.worker_errors import NodeDied, WorkerDied, WorkersDisconnected, describe_disconnect
from orchestration.progress import Report
from orchestration.signals import StopRequest
from orchestration.tracking import TrackedRun
from preprocessing.errors import ResourceError, SesameError, missing_module
from preprocessing.files import TEMPORARY, remove_tree, remove_unfinished
from training.run import CHECKPOINTS, Run, step_of, steps

if TYPE_CHECKING:  # torch is for the workers
    from training.loop import TrainingResult

log = logging.getLogger(__name__)

POLL_S: Final = 0.5  # between two polls of the first worker
OTHERS_S: Final = 2.0  # of each other one; with many workers longer, so that Ray has at most 50 a second
START_S: Final = 600  # for the processes of all workers to begin; with a cold disk their imports alone take a minute
GRACE_S: Final = 30.0  # after an error in one worker: for the death of another to show, of which it may be the echo
ANSWER_S: Final = 8.0  # for a worker that was asked to stop to answer a poll
STOP_S: Final = 20.0  # for one that was asked to stop to do something; at least four step times
ROOM_S: Final = 5.0  # that there is room for more workers, before they are started
FINISH_S: Final = 20.0  # for the checkpoint that is being written, since its files have last grown
STACKS_S: Final = 5.0  # for the stacks of all workers to be written
MOST_SAID: Final = 300  # characters of an error of Ray's, which may have pages
ELSEWHERE_S: Final = 30.0  # for a process of Ray's to begin beside a worker that does not answer
STOPPED_S: Final = 10.0  # between two turns of the driver's loop: it was stopped itself (Ctrl-Z)


class Attempt:
    """Fresh workers that train a run from its newest checkpoint."""

    def __init__(
        self, group: WorkerGroup, run: Run, tracked: TrackedRun, asked: StopRequest, hang_s: float, on_progress: Report
    ) -> None:
        self.group, self.tracked, self.asked, self.on_progress = group, tracked, asked, on_progress
        self.watch = HeartbeatMonitor(
            group.num, hang_s, time.monotonic(), run.engine.pipeline_parallel_size, run.engine.init_timeout_seconds
        )
        self.run = replace(run, engine=replace(run.engine, init_timeout_seconds=self.watch.timeout_s))
        self.logged = (
            find_newest_step(Path(run.folder)) if run.resume != "never" else 0
        )  # the last step that is known to be done
        self.workers: list[Any] = []
        self.begun: list[StartedWorker] = []
        self.futures: list[Any] = []  # of `train`, by rank
        self.polls: dict[int, tuple[Any, float]] = {}  # that have no answer yet: when they were sent
        self.polled_s = dict.fromkeys(range(group.num), 0.0)
        self.memory: dict[int, MemoryUse] = {}  # when a worker was last heard, by rank
        self.killed_before = count_oom_kills()
        self.needs = WorkerRequirements(workers=group.num)
        self.nodes: Nodes | None = None
        self.grow_at_s, self.grows, self.more = math.inf, False, StableSince()

    @property
    def step(self) -> int:
        """How many updates are done, as far as is known; at least those of the newest checkpoint."""
        return max(self.logged, *self.watch.done.values())

    def may_grow(self, needs: WorkerRequirements, nodes: Nodes | None, after_s: float) -> None:
        """The group ends with a checkpoint when more workers have room, `after_s` from now (0: never) or later."""
        self.needs, self.nodes = needs, nodes
        self.grow_at_s = time.monotonic() + after_s if after_s else math.inf

    def result(self) -> "TrainingResult":
        """What the first worker returns. WorkerDied, or what a worker raised; Preempted or KeyboardInterrupt where it
        was asked to stop and there is nothing to keep, or no worker to keep it."""
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
            self._begin()
            return self._trained()
        except (RayActorError, ActorUnschedulableError, NodeDiedError, OutOfMemoryError) as error:
            if self.nodes and (gone := self.nodes.gone(self.group.nodes)):
                raise NodeDied(f"{gone} is gone", self.step) from error
            cause = re.search(r"Worker exit type: (\w+)", str(error))  # SYSTEM_ERROR, NODE_OUT_OF_MEMORY, ...
            raise self._death(_dead(self.futures)[0] or "a worker", str(error), cause[1] if cause else "") from error
        except RayTaskError as error:
            if isinstance(error.cause, SesameError):
                raise error.cause from None
            dead, cause_of_all = _dead(self.futures, GRACE_S)
            if cause_of_all:
                raise cause_of_all from None
            if dead:
                raise self._death(dead, str(error)) from error
            if bug := _bug(self.futures):
                raise bug from None
            if said := describe_disconnect(error.cause):
                raise WorkersDisconnected(f"a worker lost the others ({said})", self.step) from error
            if isinstance(error.cause, ModuleNotFoundError):
                raise ResourceError(f"a worker: {missing_module(error.cause)}") from error
            raise
        except RuntimeEnvSetupError as error:
            said = " ".join(str(error).split())[:MOST_SAID]
            raise ResourceError(
                f"{self.run.folder}: Ray cannot prepare a node for the workers ({said}); has its disk room, and does "
                "`sesame doctor` pass there?"
            ) from error
        finally:
            try:
                self._hear_last()
                self._finish_checkpoint()
            finally:
                self._end()

    def _death(self, who: str, said: str, cause: str = "") -> WorkerDied:
        """That workers died, and of what."""
        hosts = [begun.process.host for begun in self.begun]
        most = max(self.memory, key=lambda rank: self.memory[rank].own, default=-1)
        last = self.memory.get(most, MemoryUse())
        because = describe_oom_kill(
            said, last, count_oom_kills() - self.killed_before if platform.node() in hosts else 0
        )
        beside = [used for rank, used in self.memory.items() if hosts[rank] == hosts[most]]
        share = last.shared_by(beside) if because else None
        return WorkerDied(f"{who} died ({because or cause or 'no cause known'})", self.step, share)

    def _begin(self) -> None:
        """Processes for all workers. ResourceError where Ray does not start them."""
        import ray

        self.workers = self.group.start(Worker)
        asked = [worker.begin.remote(self.run.folder, self.group.env) for worker in self.workers]
        until_s, waiting = time.monotonic() + START_S, asked
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=POLL_S)
            ray.get(done)
            self._look_around()
            if time.monotonic() > until_s:
                raise ResourceError(
                    f"{self.run.folder}: Ray did not start {len(self.workers)} processes in {START_S} s; what does "
                    "`sesame doctor` say?"
                )
        self.begun = ray.get(asked)
        meeting = self.begun[0].meeting
        self.futures = [worker.train.remote(self.run.to_json(), meeting, self.tracked) for worker in self.workers]

    def _look_around(self) -> None:
        """Preempted or KeyboardInterrupt where a signal came before the first step; WorkerDied where Ray is gone, or a
        node of the group."""
        if gone := find_fault():
            raise WorkerDied(f"{gone} died", self.step)
        if self.nodes and (gone := self.nodes.gone(self.group.nodes)):
            raise NodeDied(f"{gone} is gone", self.step)
        if self.asked.signal and max(self.watch.done.values()) < 0:
            raise self.asked.stopped(f"{self.run.folder}: stopped before its first step")

    def _trained(self) -> "TrainingResult":
        import ray

        waiting, asked_s, turn_s = self.futures, 0.0, time.monotonic()
        while waiting:
            done, waiting = ray.wait(waiting, timeout=POLL_S)
            ray.get(done)
            self._hear(waiting)
            self._look_around()
            at_work, now_s = [self.futures.index(future) for future in waiting], time.monotonic()
            if now_s - turn_s > STOPPED_S:
                self.watch.skip(now_s - turn_s)
            turn_s = now_s
            if self.asked.signal and not asked_s:
                asked_s = now_s
                self._stop()
            elif not self.grows and self._can_grow(now_s):
                self.grows = True
                self._stop()
            if asked_s:
                self._give_up(at_work, asked_s, now_s)
            if silent_s := self.watch.silent_s(at_work, now_s):
                raise WorkerDied(self._hung(at_work, silent_s, now_s), self.step)
            if compared := self.watch.compare(now_s):
                self._tell(*compared)
        return ray.get(self.futures[0])

    def _stop(self) -> None:
        """Ask all workers to end with a checkpoint."""
        for worker in self.workers:
            worker.stop.remote()

    def _can_grow(self, now_s: float) -> bool:
        """Whether it is time for more workers, and they have had room for a while."""
        if self.nodes is None or now_s < self.grow_at_s or max(self.watch.done.values()) < 1:
            return False
        room = self.needs.legal(self.group.num + self.nodes.room)
        return self.more.for_s(room if room > self.group.num else 0, now_s) >= ROOM_S

    def _hear(self, waiting: Collection[Any]) -> None:
        """Poll workers that it is time for, and take in what has been answered since."""
        import ray
        from ray.exceptions import RayError

        now_s, others_s = time.monotonic(), max(OTHERS_S, self.group.num / 50)
        for rank, worker in enumerate(self.workers):
            due_s = self.polled_s[rank] + (others_s if rank else 0.0)
            if rank not in self.polls and now_s >= due_s and self.futures[rank] in waiting:
                self.polls[rank] = worker.poll.remote(), now_s
                self.polled_s[rank] = now_s
        asked = [future for future, _ in self.polls.values()]
        ready = set(ray.wait(asked, num_returns=len(asked), timeout=0.05)[0]) if asked else set()
        for rank, (future, _) in list(self.polls.items()):
            if future in ready:
                del self.polls[rank]
                try:
                    self._take(rank, ray.get(future))
                except RayError:  # not reached for once; were it dead, its `train` would say so
                    continue

    def _hear_last(self) -> None:
        """Take in what the first worker said since its last answer, where it has returned or raised."""
        import ray
        from ray.exceptions import RayError

        if find_fault() or not self.futures or not ray.wait(self.futures[:1], timeout=0)[0]:
            return
        unanswered = [self.polls.pop(0)[0]] if 0 in self.polls else []
        with suppress(RayError):  # it died
            for answer in ray.get([*unanswered, self.workers[0].poll.remote()], timeout=ANSWER_S):
                self._take(0, answer)

    def _take(self, rank: int, answer: WorkerStatus) -> None:
        self.watch.hear(rank, answer.sign, time.monotonic())
        self.memory[rank] = answer.used
        if rank:
            return
        self.logged = max(self.logged, answer.step)
        for name, level, message in answer.said:
            logging.getLogger(name).log(level, message)
        for event in answer.events:
            self.on_progress(event)

    # Workers that do not get on

    def _give_up(self, at_work: Sequence[int], asked_s: float, now_s: float) -> None:
        """End where workers that were asked to stop cannot: the newest checkpoint is what there is."""
        mute = self._mute(at_work, now_s, asked_s)
        idle = self.watch.idle_s(at_work, now_s) > max(STOP_S, 4 * self.watch.step_s())
        if mute or (idle and now_s - asked_s > STOP_S):
            who = " and ".join(f"worker {rank}" for rank in mute) or "workers"
            raise self.asked.stopped(
                f"{self.run.folder}: stopped after step {self.step} without a checkpoint of it, as {who} did not answer"
            )

    def _mute(self, ranks: Iterable[int], now_s: float, since_s: float = 0.0) -> list[int]:
        """Those of these workers that have not answered a poll for ANSWER_S, counted from `since_s` at the earliest."""
        return [rank for rank in ranks if rank in self.polls and now_s - max(since_s, self.polls[rank][1]) > ANSWER_S]

    def _hung(self, at_work: Sequence[int], silent_s: float, now_s: float) -> str:
        """Save the stacks of all workers; who did what when nothing happened any more."""
        import ray

        folder = Path(self.run.folder)
        log.warning("%s: no worker has got on for %.0f s; writing their stacks", folder, silent_s)
        dumped = [self.workers[rank].dump_stacks.remote() for rank in at_work]
        answered = set(ray.wait(dumped, num_returns=len(dumped), timeout=STACKS_S)[0])
        mute = [rank for rank, future in zip(at_work, dumped, strict=True) if future not in answered]
        states = self._demand(mute)
        if mute:
            time.sleep(1.0)  # for faulthandler to write
        said = [f"worker {rank} ({self.begun[rank].process}) does not answer, it is {states[rank]}" for rank in mute]
        done = ", ".join(f"worker {rank} {count}" for rank, count in self.watch.done.items() if rank in at_work)
        who = " and ".join(said) or f"no worker got on (updates done: {done})"
        return f"{who} for {silent_s:.0f} s, stacks are in {folder / stacks.FOLDER}; the workers were ended"

    def _demand(self, mute: Sequence[int]) -> dict[int, str]:
        """Have workers that do not answer write their stacks by a signal, sent on their own machine; their states."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

        folder, states, asked = Path(self.run.folder), dict[int, str](), dict[Any, int]()
        for rank in mute:
            begun = self.begun[rank]
            if begun.process.host == platform.node():
                states[rank] = stacks.request_stacks(folder, rank, begun.process)
            else:
                task = ray.remote(stacks.request_stacks).options(
                    num_cpus=0, scheduling_strategy=On(begun.node, soft=False)
                )
                asked[task.remote(folder, rank, begun.process)] = rank
        done, waiting = ray.wait([*asked], num_returns=len(asked), timeout=ELSEWHERE_S) if asked else ([], [])
        for future in done:
            with suppress(ray.exceptions.RayError):  # its machine is gone
                states[asked[future]] = ray.get(future)
        for future in waiting:
            ray.cancel(future, force=True)
        return dict.fromkeys(mute, "on a machine that does not answer either") | states

    def _tell(self, slowest: float, slow: Mapping[int, float]) -> None:
        """Have the metric logged, and warn of each worker that is slower than the others."""
        self.workers[0].note.remote({"perf/slowest_worker_ratio": slowest})
        for rank, times in slow.items():
            log.warning(
                "worker %d (%s) is slow: rows and forward passes take it %.1f times as long as the median worker",
                rank, self.begun[rank].process, times,
            )  # fmt: skip

    def _finish_checkpoint(self) -> None:
        """Have the workers finish the checkpoint that they are writing, as long as its files grow, or for FINISH_S."""
        import ray

        if find_fault() or not self.begun or not _unfinished(self.run):
            return
        now_s = time.monotonic()
        at_work = [rank for rank in range(self.group.num) if rank not in self._mute(range(self.group.num), now_s)]
        if 0 not in at_work:  # it gives a checkpoint its name
            return
        self.on_progress({"stage": "finishing the checkpoint"})
        asked = {rank: self.workers[rank].finish_checkpoint.remote() for rank in at_work}
        seen, since_s = _unfinished(self.run), time.monotonic()
        while not ray.wait([asked[0]], timeout=0.1)[0] and time.monotonic() - since_s < FINISH_S:
            if (sizes := _unfinished(self.run)) != seen:
                seen, since_s = sizes, time.monotonic()

    def _end(self) -> None:
        """No worker is left, and nothing that is half written."""
        import ray

        if not find_fault():
            for worker in self.workers:
                ray.kill(worker)
        processes.kill(begun.process for begun in self.begun)
        stacks.remove_empty(Path(self.run.folder))
        for unfinished in (Path(self.run.folder) / CHECKPOINTS).glob(f"{TEMPORARY}*"):
            with suppress(OSError):
                remove_tree(unfinished)
        remove_unfinished(self.run.folder)


def _unfinished(run: Run) -> dict[str, int]:
    """Bytes of the files of checkpoints that are being written."""
    found = dict[str, int]()
    for path in (Path(run.folder) / CHECKPOINTS).glob(f"{TEMPORARY}*/*"):
        with suppress(OSError):
            found[str(path)] = path.stat().st_size
    return found


def find_newest_step(folder: Path) -> int:
    """The step of the newest checkpoint of a run, whole or not; 0: there is none."""
    return max(map(step_of, steps(folder / CHECKPOINTS)), default=0)


def _dead(futures: Sequence[Any], patience_s: float = 0.0) -> tuple[str, SesameError | None]:
    """Which workers are gone, and an error of ours, waiting for either, or for all to have ended otherwise."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    until = time.monotonic() + patience_s
    while True:
        ended, waiting = ray.wait(futures, num_returns=len(futures), timeout=0.1) if futures else ([], [])
        dead = []
        for future in ended:
            try:
                ray.get(future)
            except RayTaskError as error:
                if isinstance(error.cause, SesameError):
                    return "", error.cause
            except RayError:
                dead.append(f"worker {futures.index(future)}")
        if dead or not waiting or time.monotonic() > until:
            return " and ".join(dead), None


def _bug(futures: Sequence[Any]) -> Exception | None:
    """What a worker raised of which "lost the others" in another one may be the echo."""
    import ray
    from ray.exceptions import RayTaskError

    for future in ray.wait(futures, num_returns=len(futures), timeout=0)[0] if futures else ():
        try:
            ray.get(future)
        except RayTaskError as error:
            if not describe_disconnect(error.cause):
                return error
    return None

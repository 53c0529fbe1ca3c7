"""The processes of one group of workers, and the calls to them."""

import platform
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestration.launch import processes, stacks
from orchestration.launch.session import find_fault
from orchestration.launch.worker import StartedWorker
from orchestration.launch.worker_errors import describe_disconnect
from preprocessing.errors import SesameError

STACKS_S: Final = 5.0  # timeout for all workers to write their stacks
ELSEWHERE_S: Final = 30.0  # timeout for Ray to start a process on the node of a worker that does not answer


@dataclass(frozen=True)
class RunningWorkers:
    """The workers of a group, in order of rank. During the start, the tuples are filled one after another; until then
    they are empty.

    Ray queues a call to a busy actor, and the answer may come late. No method waits for an answer without a time limit.
    """

    actors: tuple[Any, ...] = ()
    started: tuple[StartedWorker, ...] = ()  # identity that each worker returned at its start
    results: tuple[Any, ...] = ()  # the future of `train` of each worker

    def stop(self) -> None:
        """Request that all workers end with a checkpoint."""
        for actor in self.actors:
            actor.stop.remote()

    def find_dead(self, timeout_s: float = 0.0) -> tuple[str, SesameError | None]:
        """The workers whose process is gone, as text; or the SesameError that one of them raised.

        Waits up to `timeout_s` for one of these, or for all workers to end in another way.
        """
        import ray
        from ray.exceptions import RayError, RayTaskError

        until_s, results = time.monotonic() + timeout_s, list(self.results)
        while True:
            ended, waiting = ray.wait(results, num_returns=len(results), timeout=0.1) if results else ([], [])
            dead = []
            for future in ended:
                try:
                    ray.get(future)
                except RayTaskError as error:
                    if isinstance(error.cause, SesameError):
                        return "", error.cause
                except RayError:
                    dead.append(f"worker {results.index(future)}")
            if dead or not waiting or time.monotonic() > until_s:
                return " and ".join(dead), None

    def find_bug(self) -> Exception | None:
        """An error of a worker other than a lost connection: it may be the cause of a lost connection elsewhere."""
        import ray
        from ray.exceptions import RayTaskError

        results = list(self.results)
        for future in ray.wait(results, num_returns=len(results), timeout=0)[0] if results else ():
            try:
                ray.get(future)
            except RayTaskError as error:
                if not describe_disconnect(error.cause):
                    return error
        return None

    def save_stacks(self, folder: Path, ranks: Sequence[int]) -> dict[int, str]:
        """Save the stacks of these workers. Returns the process state of each worker that does not answer."""
        import ray

        calls = [self.actors[rank].dump_stacks.remote() for rank in ranks]
        answered = set(ray.wait(calls, num_returns=len(calls), timeout=STACKS_S)[0])
        unresponsive = [rank for rank, call in zip(ranks, calls, strict=True) if call not in answered]
        states = self.request_stacks(folder, unresponsive)
        if unresponsive:
            time.sleep(1.0)  # time for faulthandler to write
        return states

    def request_stacks(self, folder: Path, ranks: Collection[int]) -> dict[int, str]:
        """Request the stacks of unresponsive workers by a signal, which must be sent on the machine of the worker.

        Returns the process state of each of these workers.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

        states, calls = dict[int, str](), dict[Any, int]()
        for rank in ranks:
            worker = self.started[rank]
            if worker.process.host == platform.node():
                states[rank] = stacks.request_stacks(folder, rank, worker.process)
            else:
                task = ray.remote(stacks.request_stacks).options(
                    num_cpus=0, scheduling_strategy=On(worker.node, soft=False)
                )
                calls[task.remote(folder, rank, worker.process)] = rank
        done, waiting = ray.wait([*calls], num_returns=len(calls), timeout=ELSEWHERE_S) if calls else ([], [])
        for future in done:
            with suppress(ray.exceptions.RayError):  # its machine is gone
                states[calls[future]] = ray.get(future)
        for future in waiting:
            ray.cancel(future, force=True)
        return dict.fromkeys(ranks, "on a machine that does not answer either") | states

    def finish_checkpoint(self, ranks: Collection[int]) -> Mapping[int, Any]:
        """Request that these workers finish the checkpoint that they are writing. Returns a future for each rank."""
        return {rank: self.actors[rank].finish_checkpoint.remote() for rank in ranks}

    def kill(self) -> None:
        """Kill all workers, even if they are stopped or their Ray is gone."""
        import ray

        if not find_fault():
            for actor in self.actors:
                ray.kill(actor)
        processes.kill(worker.process for worker in self.started)

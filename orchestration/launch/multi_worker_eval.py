"""One evaluation with several workers, for a model whose optimizer state does not fit on one."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orchestration.launch.attempt import START_S
from orchestration.launch.eval_trial import EvalTrial, TrialResources, evaluate_cell
from orchestration.launch.nodes import WorkerRequirements
from orchestration.launch.placement import place_workers
from orchestration.launch.worker import find_meeting_place
from preprocessing.errors import ResourceError

if TYPE_CHECKING:  # only the workers import torch
    from training.evaluation import EvalResult


class TrialWorker:
    """One process of the group: it processes a part of each batch and holds a part of the optimizer state."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world

    def address(self) -> tuple[str, int]:
        return find_meeting_place()

    def evaluate(
        self, env: Mapping[str, str], trial: EvalTrial, count: Path | None, meeting: tuple[str, int]
    ) -> "EvalResult":
        """The result of the trial, which is equal on all workers. The first worker writes the step count."""
        os.environ |= {
            **env,
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world),
            "LOCAL_RANK": "0",  # Ray shows each worker its own GPUs only
            "MASTER_ADDR": meeting[0],
            "MASTER_PORT": str(meeting[1]),
        }
        from training.engines import connect

        connect(trial.machine)
        return evaluate_cell(trial, count if self.rank == 0 else None)


def evaluate_together(trial: EvalTrial, count: Path | None, room: TrialResources) -> "EvalResult":
    """Evaluate one trial with `room.workers` workers, and return its result.

    Raises ResourceError if there is no room for the workers, or if they do not start in time. An error of a worker is
    raised unchanged.
    """
    import ray
    from ray.exceptions import GetTimeoutError

    needs = WorkerRequirements(num_workers=room.workers, cpus=room.cpus, gpus=room.gpus)
    with place_workers(needs, trial.machine, room.env) as group:
        workers = group.start(TrialWorker)
        try:
            meeting, *_ = ray.get([worker.address.remote() for worker in workers], timeout=START_S)
            waiting = futures = [worker.evaluate.remote(room.env, trial, count, meeting) for worker in workers]
            while waiting:
                done, waiting = ray.wait(waiting)
                ray.get(done)  # raises the first error: the other workers would wait for the failed one
            return ray.get(futures[0])
        except GetTimeoutError:
            raise ResourceError(
                f"Ray did not start {room.workers} processes in {START_S} s; run `sesame doctor` to find the cause"
            ) from None
        finally:
            for worker in workers:
                ray.kill(worker)

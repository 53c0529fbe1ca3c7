"""One evaluation by several workers, for a net whose optimiser does not fit on one."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orchestration.launch.attempt import START_S
from orchestration.launch.eval_trial import EvalTrial, TrialResources, evaluate_cell
from orchestration.launch.nodes import WorkerRequirements
from orchestration.launch.placement import place_workers
from orchestration.launch.worker import meeting_place
from preprocessing.errors import ResourceError

if TYPE_CHECKING:  # torch is for the workers
    from training.evaluation import EvalResult


class TrialWorker:
    """One process of a group that evaluates together: each takes its share of every batch and of the optimiser."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world

    def address(self) -> tuple[str, int]:
        return meeting_place()

    def evaluate(
        self, env: Mapping[str, str], cell: EvalTrial, count: Path | None, meeting: tuple[str, int]
    ) -> "EvalResult":
        """The scores of the cell, which all workers have; the first one counts the steps."""
        os.environ |= {
            **env,
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world),
            "LOCAL_RANK": "0",  # Ray shows each worker its own GPUs only
            "MASTER_ADDR": meeting[0],
            "MASTER_PORT": str(meeting[1]),
        }
        from training.engines import connect

        connect(cell.machine)
        return evaluate_cell(cell, count if self.rank == 0 else None)


def evaluate_together(cell: EvalTrial, count: Path | None, room: TrialResources) -> "EvalResult":
    """The scores of one cell, by as many workers as the room says. ResourceError where they have no place, or do not
    begin; what one of them raises comes as it is."""
    import ray
    from ray.exceptions import GetTimeoutError

    needs = WorkerRequirements(workers=room.workers, cpus=room.cpus, gpus=room.gpus)
    with place_workers(needs, cell.machine, room.env) as group:
        workers = group.start(TrialWorker)
        try:
            meeting, *_ = ray.get([worker.address.remote() for worker in workers], timeout=START_S)
            waiting = futures = [worker.evaluate.remote(room.env, cell, count, meeting) for worker in workers]
            while waiting:
                done, waiting = ray.wait(waiting)
                ray.get(done)  # the first error ends all: the others would wait for the one that raised it
            return ray.get(futures[0])
        except GetTimeoutError:
            raise ResourceError(f"Ray did not start {room.workers} processes in {START_S} s") from None
        finally:
            for worker in workers:
                ray.kill(worker)

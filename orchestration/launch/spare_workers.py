"""Workers that start and import torch before they are needed, while the driver does other work.

A thread starts our own Ray early (session.py), and then the processes of the training or of evaluations. Later,
`place_workers` uses these workers of the training instead of new ones, and Ray uses the processes of evaluations. Their
imports take seconds, which the driver would otherwise wait for.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orchestration.launch.eval_trial import TrialResources
from orchestration.launch.eval_trials import start_trial_processes
from orchestration.launch.nodes import WorkerRequirements
from orchestration.launch.placement import SpareWorkers, offer_workers, options_of
from orchestration.launch.session import early_ray_session
from orchestration.launch.worker import Worker
from preprocessing.errors import ResourceError
from training.specs import EngineSettings

RESERVED_S: Final = 30.0  # timeout for the resources of spare workers


@contextmanager
def start_workers_early(
    needs: WorkerRequirements,
    machine: EngineSettings,
    env: Mapping[str, str],
    *,
    cpus: int,
    gpus: int = 0,
    dashboard: bool = False,
    logs: Path | None = None,
) -> Iterator[None]:
    """Start our own Ray with `cpus` and `gpus`, and the workers of a training, while the block does other work.

    `pretrain` inside the block uses this Ray and these workers. All of them end with the block.
    """
    spare = SpareWorkers(needs, options_of(needs, machine))

    def start() -> None:
        from ray.util.placement_group import placement_group

        placement = placement_group([needs.bundle] * needs.num_workers, strategy="PACK")
        if not placement.wait(RESERVED_S):
            raise ResourceError(f"Ray had no room within {RESERVED_S:.0f} s")
        group = spare.fill(placement, Worker)
        for worker in group.spare:
            worker.import_training.remote(env)

    with (
        early_ray_session(cpus=cpus, gpus=gpus, dashboard=dashboard, logs=logs, warm_up=start),
        offer_workers(spare),
    ):
        yield


@contextmanager
def start_trials_early(
    room: TrialResources, num: int, *, cpus: int, gpus: int = 0, dashboard: bool = False, logs: Path | None = None
) -> Iterator[None]:
    """Start our own Ray, and the processes of up to `num` evaluations, while the block does other work."""

    def start() -> None:
        start_trial_processes(room, num)

    with early_ray_session(cpus=cpus, gpus=gpus, dashboard=dashboard, logs=logs, warm_up=start):
        yield

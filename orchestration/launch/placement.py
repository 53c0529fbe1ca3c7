"""Room on Ray for the workers of one task, and fresh workers in it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from orchestration.launch.session import fault
from orchestration.signals import Asked
from preprocessing.errors import ResourceError
from training.specs import Machine

PLACEMENT_S = 180.0  # for the resources of a group to become free
LOOK_S = 1.0  # between two looks at whether someone has asked to stop


@dataclass(frozen=True)
class Group:
    """Room for the workers of a run, and how each of them starts."""

    num: int
    placement: Any
    options: dict[str, Any]

    def start(self, kind: type) -> list[Any]:
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
def placed(num: int, cpus: int, gpus: int, machine: Machine, asked: Asked | None = None) -> Iterator[Group]:
    """All workers have their place inside the block, or ResourceError; with `asked`, a signal ends the wait for it."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    placement = placement_group([{"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}] * num, strategy="PACK")
    environment = {"DS_ACCELERATOR": machine.device, "OMP_NUM_THREADS": str(machine.threads)}
    try:
        until_s = time.monotonic() + PLACEMENT_S
        while not placement.wait(min(LOOK_S, PLACEMENT_S)):
            if asked and asked.signal:
                raise asked.stopped("stopped while the workers waited for their place")
            if time.monotonic() > until_s:
                free = {name: amount for name, amount in ray.available_resources().items() if name in ("CPU", "GPU")}
                raise ResourceError(
                    f"{num} workers with {cpus} CPUs and {gpus} GPUs each have no place, Ray has {free or 'nothing'} "
                    "free; ask for fewer workers, or wait for the other job to end"
                )
        # four methods at a time: train, and meanwhile poll, stop and stacks
        resources = {"num_cpus": cpus, "num_gpus": gpus, "max_concurrency": 4}
        yield Group(num, placement, resources | {"runtime_env": {"env_vars": environment}})
    finally:
        if not fault():
            remove_placement_group(placement)

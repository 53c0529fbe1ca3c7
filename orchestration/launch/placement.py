"""Room on Ray for the workers of one task, and fresh workers in it."""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from orchestration.launch.nodes import Nodes, StableSince, WorkerRequirements
from orchestration.launch.session import find_fault
from orchestration.launch.worker_errors import WorkerDied
from orchestration.progress import Report, ignore_progress
from orchestration.signals import StopRequest
from preprocessing.errors import ResourceError
from training.specs import EngineSettings

log = logging.getLogger(__name__)

PLACEMENT_S = 180.0  # for the resources of a group to become free
NODES_S = 600.0  # the same, where a run goes on: a node that takes the place of another takes minutes to begin
LOOK_S = 1.0  # between two looks at whether someone has asked to stop
SETTLE_S = 3.0  # for what workers that have ended had to be free again, before fewer are started


@dataclass(frozen=True)
class WorkerGroup:
    """Room for the workers of a run, and how each of them starts."""

    bundles: Sequence[int]  # of the placement group, by rank
    placement: Any
    options: dict[str, Any]
    nodes: tuple[str, ...] = ()  # the ids of those that it is on
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # for each worker, in a call: see environment.py

    @property
    def num(self) -> int:
        """Workers."""
        return len(self.bundles)

    def start(self, kind: type) -> list[Any]:
        """Fresh workers of a class that is made with rank and world, by rank."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Placed

        actor = ray.remote(kind)
        places = [Placed(self.placement, placement_group_bundle_index=bundle) for bundle in self.bundles]
        return [
            actor.options(scheduling_strategy=place, **self.options).remote(rank, self.num)
            for rank, place in enumerate(places)
        ]


@contextmanager
def place_workers(
    needs: WorkerRequirements,
    machine: EngineSettings,
    env: Mapping[str, str],
    asked: StopRequest | None = None,
    nodes: Nodes | None = None,
    wait_s: float | None = None,
    report: Report = ignore_progress,
) -> Iterator[WorkerGroup]:
    """All workers have their place inside the block, or ResourceError; with `asked`, a signal ends the wait for it.
    WorkerDied where our own Ray is gone meanwhile.

    Where `needs` allow fewer, and `nodes` have no room for all, as many as there is room for have theirs. `wait_s` is
    how long to wait, PLACEMENT_S where it is not given; what it waits for is said.
    """
    from ray.util.placement_group import placement_group, remove_placement_group

    def places(num: int) -> Any:
        return placement_group([needs.bundle] * num, strategy="PACK")

    num, fewer = needs.workers, StableSince()
    placement = places(num)
    try:
        until_s = time.monotonic() + (wait_s := PLACEMENT_S if wait_s is None else wait_s)
        while not placement.wait(min(LOOK_S, wait_s)):
            if asked and asked.signal:
                raise asked.stopped("stopped while the workers waited for their place")
            if gone := find_fault():
                raise WorkerDied(f"{gone} died", step=0)
            room = needs.legal(nodes.room) if nodes else 0
            if fewer.for_s(room) >= SETTLE_S and room < num:
                log.warning("the nodes of Ray have room for %d of %d workers: going on with these", room, needs.workers)
                remove_placement_group(placement)
                num, placement = room, places(room)
            elif time.monotonic() > until_s:
                raise ResourceError(_no_place(needs))
            waits = {"stage": f"waiting for {describe_request(num, needs)}", "Ray has": _has()}
            report(waits | {"left_s": until_s - time.monotonic()})
        environment = {"DS_ACCELERATOR": machine.device, "OMP_NUM_THREADS": str(machine.cpu_threads)}
        # four methods at a time: train, and meanwhile poll, stop and stacks
        resources = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "max_concurrency": 4}
        options = resources | {"runtime_env": {"env_vars": environment}}
        node_of = _node_of(placement) if nodes else dict.fromkeys(range(num), "")  # our own Ray has one
        ranks = by_node(node_of)
        if split := count_divided_groups([node_of[bundle] for bundle in ranks], together := _talking(machine)):
            log.warning(
                "%d of %d groups of %d workers that exchange something in each layer are on two nodes or more: place "
                "for whole groups on each node makes steps faster", split, num // together, together
            )  # fmt: skip
        yield WorkerGroup(ranks, placement, options, tuple(sorted(set(node_of.values()))) if nodes else (), env)
    finally:
        if not find_fault():
            remove_placement_group(placement)


def _node_of(placement: Any) -> Mapping[int, str]:
    """The id of the node of each bundle of a group that is placed."""
    from ray.util.placement_group import placement_group_table

    return placement_group_table(placement)["bundles_to_node_id"]


def by_node(node_of: Mapping[int, str]) -> list[int]:
    """Bundles by rank, those of a node in a row and nodes with more of them first. Ray mixes bundles that are alike.

    >>> by_node({0: "a", 1: "b", 2: "b", 3: "a", 4: "b"})
    [1, 2, 4, 0, 3]
    """
    has = Counter(node_of.values())
    return sorted(node_of, key=lambda bundle: (-has[node_of[bundle]], node_of[bundle], bundle))


def count_divided_groups(nodes: Sequence[str], together: int) -> int:
    """How many groups of so many workers in a row, whose nodes these are by rank, are on two nodes or more.

    >>> count_divided_groups(["a", "a", "a", "b", "b", "b"], together=2)
    1
    """
    return sum(len(set(nodes[first : first + together])) > 1 for first in range(0, len(nodes), together))


def _talking(machine: EngineSettings) -> int:
    """Workers in a row that wait for each other in each layer (training/engines/mesh.py)."""
    return machine.tensor_parallel_size * machine.sequence_parallel_size


def describe_request(num: int, needs: WorkerRequirements) -> str:
    """What a group asks of Ray.

    >>> one = WorkerRequirements(workers=1, cpus=1, gpus=1)
    >>> describe_request(16, WorkerRequirements(workers=16, cpus=4)), describe_request(1, one)
    ('16 workers of 4 CPUs', '1 worker of 1 CPU and 1 GPU')
    """
    each = " and ".join(
        format_count(amount, name) for name, amount in (("CPU", needs.cpus), ("GPU", needs.gpus)) if amount
    )
    return f"{format_count(num, 'worker')} of {each}"


def format_count(number: float, name: str) -> str:
    """
    >>> format_count(1, "GPU"), format_count(0.5, "CPU"), format_count(2.0, "CPU")
    ('1 GPU', '0.5 CPUs', '2 CPUs')
    """
    return f"{number:g} {name}{'' if number == 1 else 's'}"


def _has() -> str:
    """The CPUs and GPUs of Ray, and how many of them are free."""
    import ray

    free = ray.available_resources()
    has = {name: amount for name, amount in ray.cluster_resources().items() if name in ("CPU", "GPU")}
    return (
        " and ".join(f"{format_count(amount, name)} ({free.get(name, 0):g} free)" for name, amount in has.items())
        or "none"
    )


def _no_place(needs: WorkerRequirements) -> str:
    """What is asked for, and what there is."""
    least = "" if needs.least == needs.workers else f"at least {needs.least} of "
    return (
        f"{least}{describe_request(needs.workers, needs)} have no place, Ray has {_has()}; ask for fewer workers "
        "(cluster.num_workers, cluster.cpus_per_worker), or wait for the other job to end"
    )

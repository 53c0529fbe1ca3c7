"""Reserves resources of Ray for the workers of one task, and starts new workers there."""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from orchestration.launch.nodes import Nodes, StableSince, WorkerRequirements
from orchestration.launch.session import find_fault
from orchestration.launch.worker_errors import WorkerDied
from orchestration.progress import Report, ignore_progress
from orchestration.signals import StopRequest
from preprocessing.errors import ResourceError
from training.specs import EngineSettings

log = logging.getLogger(__name__)

PLACEMENT_S = 180.0  # timeout for the resources of a group to become free
NODES_S = 600.0  # the same timeout when a run continues: a replacement node takes minutes to start
LOOK_S = 1.0  # interval between two checks for a stop request
SETTLE_S = 3.0  # wait for the resources of ended workers to become free, before fewer workers are started


@dataclass(frozen=True)
class WorkerGroup:
    """Reserved resources for the workers of a run, and the options with which each worker starts."""

    bundles: Sequence[int]  # index of the bundle in the placement group, by rank
    placement: Any
    options: dict[str, Any]
    nodes: tuple[str, ...] = ()  # ids of the nodes of the group
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # environment variables (environment.py)
    spare: list[Any] = field(default_factory=list, repr=False)  # actors that have started; the first start uses them

    @property
    def num(self) -> int:
        """Number of workers."""
        return len(self.bundles)

    def start(self, kind: type) -> list[Any]:
        """An actor of class `kind` for each rank, started with the arguments rank and world size.

        Spare actors, which are of the same class, are returned once; later calls start new ones.
        """
        if self.spare:
            actors, self.spare[:] = list(self.spare), []
            return actors
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Placed

        actor = ray.remote(kind)
        places = [Placed(self.placement, placement_group_bundle_index=bundle) for bundle in self.bundles]
        return [
            actor.options(scheduling_strategy=place, **self.options).remote(rank, self.num)
            for rank, place in enumerate(places)
        ]


class SpareWorkers:
    """Workers that were started early for certain requirements (spare_workers.py). They are used once."""

    def __init__(self, needs: WorkerRequirements, options: Mapping[str, Any]) -> None:
        self.needs, self.options = needs, dict(options)
        self.group: WorkerGroup | None = None

    def fill(self, placement: Any, kind: type) -> WorkerGroup:
        """Start the actors in a placement group. Our own Ray has a single node, so the bundles are in order of rank."""
        group = WorkerGroup(range(self.needs.num_workers), placement, self.options)
        self.group = replace(group, spare=group.start(kind))
        return self.group

    def take(self, needs: WorkerRequirements, options: Mapping[str, Any]) -> WorkerGroup | None:
        """The started workers, if they have exactly these requirements and options; None if they do not, or at the
        second call.

        Workers that do not fit are ended, because they would hold the resources of those that are needed.
        """
        group, self.group = self.group, None
        is_equal = (needs.num_workers, needs.bundle, options) == (
            self.needs.num_workers,
            self.needs.bundle,
            self.options,
        )
        if group and not is_equal:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(group.placement)
        return group if is_equal else None


_offered = ContextVar[SpareWorkers | None]("_offered", default=None)


@contextmanager
def offer_workers(spare: SpareWorkers) -> Iterator[None]:
    """Inside the block, `place_workers` takes these workers if they fit."""
    token = _offered.set(spare)
    try:
        yield
    finally:
        _offered.reset(token)


def options_of(needs: WorkerRequirements, machine: EngineSettings) -> dict[str, Any]:
    """Ray's options of each worker."""
    environment = {"DS_ACCELERATOR": machine.device, "OMP_NUM_THREADS": str(machine.cpu_threads)}
    # four methods can run at the same time: `train`, `poll`, `stop` and `dump_stacks`
    resources = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "max_concurrency": 4}
    return resources | {"runtime_env": {"env_vars": environment}}


@contextmanager
def place_workers(
    needs: WorkerRequirements,
    machine: EngineSettings,
    env: Mapping[str, str],
    stop_request: StopRequest | None = None,
    nodes: Nodes | None = None,
    wait_s: float | None = None,
    report: Report = ignore_progress,
) -> Iterator[WorkerGroup]:
    """Reserve resources for all workers inside the block.

    If `needs` allow fewer workers, and `nodes` have no room for all of them, resources for as many as fit are reserved.
    The wait takes up to `wait_s` seconds (default PLACEMENT_S), and `report` shows which resources are missing.

    Raises ResourceError if the resources do not become free, WorkerDied if our own Ray dies meanwhile. A signal of
    `stop_request` ends the wait.
    """
    from ray.util.placement_group import placement_group, remove_placement_group

    def reserve(num: int) -> Any:
        return placement_group([needs.bundle] * num, strategy="PACK")

    options, spare = options_of(needs, machine), _offered.get()
    if spare and (group := spare.take(needs, options)):
        try:
            yield replace(group, env=env)
        finally:
            if not find_fault():
                remove_placement_group(group.placement)
        return
    num, fewer = needs.num_workers, StableSince()
    placement = reserve(num)
    try:
        until_s = time.monotonic() + (wait_s := PLACEMENT_S if wait_s is None else wait_s)
        while not placement.wait(min(LOOK_S, wait_s)):
            if stop_request and stop_request.signal:
                raise stop_request.make_exception("stopped while waiting for the resources of the workers")
            if fault := find_fault():
                raise WorkerDied(f"{fault} died", step=0)
            room = needs.num_allowed(nodes.room) if nodes else 0
            if fewer.stable_s(room) >= SETTLE_S and room < num:
                log.warning("Ray has room for %d of %d workers: continuing with these", room, needs.num_workers)
                remove_placement_group(placement)
                num, placement = room, reserve(room)
            elif time.monotonic() > until_s:
                raise ResourceError(_explain_no_room(needs))
            event = {"stage": f"waiting for {describe_request(num, needs)}", "Ray has": _describe_resources(needs)}
            report(event | {"left_s": until_s - time.monotonic()})
        node_of = _node_of(placement) if nodes else dict.fromkeys(range(num), "")  # our own Ray has a single node
        ranks = by_node(node_of)
        size = _count_communicating_workers(machine)
        if split := count_divided_groups([node_of[bundle] for bundle in ranks], size):
            log.warning(
                "%d of %d groups of %d workers that communicate in each layer span several nodes; steps are faster "
                "with whole groups on each node", split, num // size, size
            )  # fmt: skip
        yield WorkerGroup(ranks, placement, options, tuple(sorted(set(node_of.values()))) if nodes else (), env)
    finally:
        if not find_fault():
            remove_placement_group(placement)


def _node_of(placement: Any) -> Mapping[int, str]:
    """The id of the node of each bundle of a placement group."""
    from ray.util.placement_group import placement_group_table

    return placement_group_table(placement)["bundles_to_node_id"]


def by_node(node_of: Mapping[int, str]) -> list[int]:
    """Bundles by rank: those of one node in a row, nodes with more bundles first.

    This order is needed because Ray mixes the nodes of bundles with equal resources.

    >>> by_node({0: "a", 1: "b", 2: "b", 3: "a", 4: "b"})
    [1, 2, 4, 0, 3]
    """
    count = Counter(node_of.values())
    return sorted(node_of, key=lambda bundle: (-count[node_of[bundle]], node_of[bundle], bundle))


def count_divided_groups(nodes: Sequence[str], together: int) -> int:
    """How many groups of `together` consecutive workers span two nodes or more; `nodes` are in order of rank.

    >>> count_divided_groups(["a", "a", "a", "b", "b", "b"], together=2)
    1
    """
    return sum(len(set(nodes[first : first + together])) > 1 for first in range(0, len(nodes), together))


def _count_communicating_workers(machine: EngineSettings) -> int:
    """Number of consecutive workers that wait for each other in each layer (training/engines/mesh.py)."""
    return machine.tensor_parallel_size * machine.sequence_parallel_size


def describe_request(num: int, needs: WorkerRequirements) -> str:
    """The resources of a group, as text.

    >>> one = WorkerRequirements(num_workers=1, cpus=1, gpus=1)
    >>> describe_request(16, WorkerRequirements(num_workers=16, cpus=4)), describe_request(1, one)
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


def _describe_resources(needs: WorkerRequirements) -> str:
    """The CPUs and GPUs of Ray, and how many of them are free, as text; GPUs also if there are none but some are
    needed."""
    import ray

    free = ray.available_resources()
    total = {name: amount for name, amount in ray.cluster_resources().items() if name in ("CPU", "GPU")}
    if needs.gpus:
        total.setdefault("GPU", 0)
    return (
        " and ".join(f"{format_count(amount, name)} ({free.get(name, 0):g} free)" for name, amount in total.items())
        or "none"
    )


def _explain_no_room(needs: WorkerRequirements) -> str:
    """The message if the resources of a group do not become free."""
    least = "" if needs.least == needs.num_workers else f"at least {needs.least} of "
    return (
        f"no room for {least}{describe_request(needs.num_workers, needs)}: Ray has {_describe_resources(needs)}; lower "
        "cluster.num_workers or cluster.cpus_per_worker, or wait for the other job to end"
    )

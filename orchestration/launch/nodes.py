"""The nodes of a Ray cluster: which nodes are gone, and how many more workers fit on the living ones.

A thread sends a request to Ray each second. No other code waits for the answer, which may never come if Ray is
unreachable.
"""

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

log = logging.getLogger(__name__)

ASK_S: Final = 1.0
JOIN_S: Final = 2.0  # timeout for the end of the thread; it is a daemon thread, in case it still waits for Ray
ROOM_S: Final = 5.0  # the room for more workers must last this long before they are started


@dataclass(frozen=True, kw_only=True)
class WorkerRequirements:
    """The resources that the workers of a run need, and how many workers are allowed."""

    num_workers: int  # maximum number of workers; also the number at the start of a run
    cpus: int = 1  # per worker
    gpus: int = 0  # per worker
    min_workers: int = 0  # minimum number of workers after nodes are lost; 0: the run continues only with all workers
    unit: int = 1  # the number of workers must be a multiple of it

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of one worker, as Ray names them."""
        return {"CPU": self.cpus, "GPU": self.gpus} if self.gpus else {"CPU": self.cpus}

    @property
    def least(self) -> int:
        """The smallest allowed number of workers, which is a multiple of `unit`.

        >>> WorkerRequirements(num_workers=8, min_workers=3, unit=2).least, WorkerRequirements(num_workers=8).least
        (4, 8)
        """
        return -(-self.min_workers // self.unit) * self.unit if self.min_workers else self.num_workers

    def num_allowed(self, room: int) -> int:
        """The largest allowed number of workers if `room` workers fit; 0 if too few fit.

        >>> needs = WorkerRequirements(num_workers=8, min_workers=4, unit=2)
        >>> [needs.num_allowed(room) for room in (3, 5, 8, 99)]
        [0, 4, 8, 8]
        """
        num = min(self.num_workers, room) // self.unit * self.unit
        return num if num >= self.least else 0

    def count_fitting(self, free: Iterable[Mapping[str, float]]) -> int:
        """How many workers fit on nodes with these free resources.

        >>> WorkerRequirements(num_workers=8, cpus=2).count_fitting([{"CPU": 5.0}, {"CPU": 1.0}, {}])
        2
        """
        return sum(min(int(node.get(name, 0) // amount) for name, amount in self.bundle.items()) for node in free)


class Nodes:
    """The latest information of Ray about its nodes."""

    def __init__(self, needs: WorkerRequirements) -> None:
        self.needs = needs
        self.dead: dict[str, str] = {}  # address of each dead node, by Ray's id
        self.room = 0  # number of additional workers that fit
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep_updating, daemon=True, name="nodes")

    def describe_missing(self, ids: Iterable[str]) -> str:
        """The dead nodes among `ids`, as text; "" if all are alive."""
        dead = dict(self.dead)
        return " and ".join(f"node {dead[id]}" for id in dict.fromkeys(ids) if id in dead)

    def update(self) -> None:
        """Get the information from Ray now. Errors of Ray are not caught."""
        import ray

        # A DeveloperAPI of Ray 2.60 without a public name: `ray.available_resources` has the sum over all nodes, and
        # `ray.nodes` and `ray.util.state.list_nodes` have the total of each node, but not what is free there.
        from ray._private.state import available_resources_per_node

        nodes: list[Mapping[str, Any]] = ray.nodes()
        free = available_resources_per_node()
        self.dead = {node["NodeID"]: node["NodeManagerAddress"] for node in nodes if not node["Alive"]}
        alive = [node["NodeID"] for node in nodes if node["Alive"]]
        self.room = self.needs.count_fitting(free[id] for id in alive if id in free)

    def _keep_updating(self) -> None:
        while not self._end.wait(ASK_S):
            try:
                self.update()
            except Exception as error:  # Ray is unreachable, or this process is disconnecting from it
                log.debug("Ray does not list its nodes: %s", error)


@contextmanager
def watch_nodes(needs: WorkerRequirements) -> Iterator[Nodes]:
    """The nodes of the connected Ray, updated inside the block."""
    nodes = Nodes(needs)
    nodes._thread.start()
    try:
        yield nodes
    finally:
        nodes._end.set()
        nodes._thread.join(JOIN_S)


class StableSince:
    """Measures for how long a number has not changed."""

    def __init__(self) -> None:
        self._value, self._since_s = 0, 0.0

    def stable_s(self, value: int, now_s: float | None = None) -> float:
        """Seconds since `value` last changed; 0 for the value 0."""
        now_s = time.monotonic() if now_s is None else now_s
        if value != self._value:
            self._value, self._since_s = value, now_s
        return now_s - self._since_s if value else 0.0


@dataclass(frozen=True)
class GrowthTrigger:
    """Decides when a group of `num` workers stops, so that the run can continue with more of them."""

    needs: WorkerRequirements
    nodes: Nodes
    num: int
    not_before_s: float  # earliest time of the stop, by the monotonic clock
    larger: StableSince = field(default_factory=StableSince)

    def is_due(self, now_s: float) -> bool:
        """Whether a larger allowed number of workers has had room for ROOM_S."""
        if now_s < self.not_before_s:
            return False
        num = self.needs.num_allowed(self.num + self.nodes.room)
        return self.larger.stable_s(num if num > self.num else 0, now_s) >= ROOM_S

"""The nodes of a Ray cluster: which of those of a group are gone, and how many workers have room on the living ones.

A thread asks Ray each second, whose answer may not come: nobody waits for it.
"""

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

log = logging.getLogger(__name__)

ASK_S: Final = 1.0
JOIN_S: Final = 2.0  # for the thread to end; one that waits for Ray is a daemon's


@dataclass(frozen=True, kw_only=True)
class WorkerRequirements:
    """What the workers of a run take, and how many there may be."""

    workers: int  # at most, and at the beginning
    cpus: int = 1  # of each worker
    gpus: int = 0
    fewest: int = 0  # with which training goes on where nodes are gone; 0: all
    unit: int = 1  # workers come in multiples of it

    @property
    def bundle(self) -> dict[str, float]:
        """What each worker takes of Ray's resources."""
        return {"CPU": self.cpus, "GPU": self.gpus} if self.gpus else {"CPU": self.cpus}

    @property
    def least(self) -> int:
        """The smallest number of workers, in whole groups.

        >>> WorkerRequirements(workers=8, fewest=3, unit=2).least, WorkerRequirements(workers=8).least
        (4, 8)
        """
        return -(-self.fewest // self.unit) * self.unit if self.fewest else self.workers

    def legal(self, room: int) -> int:
        """The most workers that find room, of at most so many; 0 where these are too few.

        >>> needs = WorkerRequirements(workers=8, fewest=4, unit=2)
        >>> [needs.legal(room) for room in (3, 5, 8, 99)]
        [0, 4, 8, 8]
        """
        found = min(self.workers, room) // self.unit * self.unit
        return found if found >= self.least else 0

    def fit(self, free: Iterable[Mapping[str, float]]) -> int:
        """How many workers have room on nodes of which so much is free.

        >>> WorkerRequirements(workers=8, cpus=2).fit([{"CPU": 5.0}, {"CPU": 1.0}, {}])
        2
        """
        return sum(min(int(node.get(name, 0) // amount) for name, amount in self.bundle.items()) for node in free)


class Nodes:
    """What Ray has last said of its nodes."""

    def __init__(self, needs: WorkerRequirements) -> None:
        self.needs = needs
        self.dead: dict[str, str] = {}  # by id: where it was
        self.room = 0  # for so many more workers
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep_asking, daemon=True, name="nodes")

    def gone(self, ids: Iterable[str]) -> str:
        """Those of these nodes that are gone, in words; "" where none is."""
        dead = dict(self.dead)
        return " and ".join(f"node {dead[id]}" for id in dict.fromkeys(ids) if id in dead)

    def ask(self) -> None:
        """Ray's answer now. Raises what Ray raises."""
        import ray
        from ray._private import state

        found: list[Mapping[str, Any]] = ray.nodes()
        free = state.available_resources_per_node()
        self.dead = {node["NodeID"]: node["NodeManagerAddress"] for node in found if not node["Alive"]}
        self.room = self.needs.fit(free[node["NodeID"]] for node in found if node["Alive"] and node["NodeID"] in free)

    def _keep_asking(self) -> None:
        while not self._end.wait(ASK_S):
            try:
                self.ask()
            except Exception as error:  # Ray is away, or is just being left
                log.debug("Ray does not say which nodes it has: %s", error)


@contextmanager
def watch_nodes(needs: WorkerRequirements) -> Iterator[Nodes]:
    """The nodes of the Ray that this process is connected to, watched inside the block."""
    nodes = Nodes(needs)
    nodes._thread.start()
    try:
        yield nodes
    finally:
        nodes._end.set()
        nodes._thread.join(JOIN_S)


class StableSince:
    """Since when a number has been the same, or larger."""

    def __init__(self) -> None:
        self._value, self._since_s = 0, 0.0

    def for_s(self, value: int, now_s: float | None = None) -> float:
        """For how long it has not been smaller than now, nor changed upwards; 0 for 0."""
        now_s = time.monotonic() if now_s is None else now_s
        if value != self._value:
            self._value, self._since_s = value, now_s
        return now_s - self._since_s if value else 0.0

"""Workers as threads, for agreements before there is an engine."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from preprocessing.errors import BadInput
from training.workers import Workers


def run_together(world: int, task: Callable[[Workers], Any]) -> list[Any]:
    """The return value of each of `world` workers, or the BadInput that it raised."""
    barrier, given = Barrier(world, timeout=60), dict[int, Sequence[float]]()

    class Worker:
        def __init__(self, rank: int) -> None:
            self.rank, self.world = rank, world

        def reduce_sums(self, values: Sequence[float]) -> list[float]:
            given[self.rank] = values
            barrier.wait()
            sums = [float(sum(each)) for each in zip(*given.values(), strict=True)]
            barrier.wait()
            return sums

    def done(rank: int) -> Any:
        try:
            return task(Worker(rank))
        except BadInput as error:
            return error

    with ThreadPoolExecutor(world) as threads:
        return list(threads.map(done, range(world)))

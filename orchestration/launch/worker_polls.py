"""Polls of the workers of a group: when each is due, which are unanswered."""

import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from orchestration.launch.worker import WorkerStatus

OTHERS_S: Final = 2.0  # interval between two polls of a worker other than the first; longer with more than 100 workers
MOST_PER_S: Final = 50  # maximum polls of these other workers per second
ANSWER_S: Final = 8.0  # a worker that has not answered a poll after this time is unresponsive


class WorkerPolls:
    """Polls the workers without waiting for any of them: an answer is collected in a later call.

    The first worker is polled in each call, the others every OTHERS_S, or less often to keep to MOST_PER_S in all.
    """

    def __init__(self, num: int) -> None:
        self._every_s = [0.0, *(num - 1) * [max(OTHERS_S, num / MOST_PER_S)]]
        self._polled_s = [0.0] * num
        self._open: dict[int, tuple[Any, float]] = {}  # rank -> the future of its answer, and when the poll was sent

    def poll(self, actors: Iterable[Any], ranks: Collection[int]) -> Iterator[tuple[int, WorkerStatus]]:
        """Send the polls that are due to these ranks, and yield each answer that has arrived, with its rank."""
        import ray
        from ray.exceptions import RayError

        now_s = time.monotonic()
        for rank, actor in enumerate(actors):
            if rank in ranks and rank not in self._open and now_s >= self._polled_s[rank] + self._every_s[rank]:
                self._open[rank] = actor.poll.remote(), now_s
                self._polled_s[rank] = now_s
        futures = [future for future, _ in self._open.values()]
        ready = set(ray.wait(futures, num_returns=len(futures), timeout=0.05)[0]) if futures else set()
        for rank, (future, _) in list(self._open.items()):
            if future in ready:
                del self._open[rank]
                try:
                    status = ray.get(future)
                except RayError:  # a lost message; if the worker had died, the future of `train` would fail
                    continue
                yield rank, status

    def poll_last(self, actor: Any) -> list[WorkerStatus]:
        """The last answers of the first worker, whose `train` has ended; empty if its process is gone."""
        import ray
        from ray.exceptions import RayError

        unanswered = [self._open.pop(0)[0]] if 0 in self._open else []
        with suppress(RayError):  # its process is gone
            return list(ray.get([*unanswered, actor.poll.remote()], timeout=ANSWER_S))
        return []

    def unresponsive(self, ranks: Iterable[int], now_s: float, since_s: float = 0.0) -> list[int]:
        """The workers among `ranks` that have not answered a poll for ANSWER_S, counted from `since_s` or later."""
        return [rank for rank in ranks if rank in self._open and now_s - max(since_s, self._open[rank][1]) > ANSWER_S]

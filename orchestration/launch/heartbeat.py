"""Checks whether the workers of a group make progress: which are silent for too long, and which are slow.

All times come from the clock of the driver.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Final

STEP_TIMES: Final = 10  # a step may last this many mean step times, if that is longer than cluster.hang_timeout_minutes
OTHERS: Final = 6  # factor for other work: starts, first steps (they compile), evaluations, checkpoints, exports
EVERY_S: Final = 60.0  # interval between two comparisons of the speed of the workers
SLOWER: Final = 1.5  # a worker is slow if it takes this many times the compute time of the median worker ...
IN_A_ROW: Final = 3  # ... in this many comparisons in a row
FEWEST: Final = 10  # minimum updates between two comparisons
DAY_S: Final = 86_400
FIRST_S: Final = 60.0  # the driver ends a silent group this long before a collective call would fail
MEETING: Final = "connecting the workers"  # activity of a worker before it builds its model
STEP: Final = "step"  # activity of a worker in an update, except the first update of its process


@dataclass(frozen=True)
class Heartbeat:
    """Progress of a worker, as that worker reports it."""

    beats: int  # number of stages and updates that have begun
    done: int  # number of updates done; -1 before the first one begins
    activity: str  # STEP, or the name of other work
    compute_s: float = 0.0  # compute time of `timed_updates`: batches and forward passes, without waiting for others
    timed_updates: int = 0


@dataclass(frozen=True)
class _Seen:
    heartbeat: Heartbeat
    since_s: float  # time when this value of `beats` first arrived


class HeartbeatMonitor:
    """Detects hanging and slow workers of one group from their latest heartbeats."""

    def __init__(self, num: int, hang_s: float, now_s: float, stages: int = 1, timeout_s: int = 0) -> None:
        """Monitor `num` workers; a step may last `hang_s` (0: unlimited).

        `stages` is the number of pipeline stages; speed is compared within a stage, where all do the same work.

        `timeout_s` limits the rendezvous of the workers. Later it is also the timeout of collective calls, whose error
        does not say which worker is missing. So with a monitor, workers must use `self.timeout_s` instead: it is longer
        than any limit of the monitor, which therefore acts first.
        """
        self.hang_s, self.meeting_s = hang_s, max(hang_s, timeout_s)
        self.timeout_s = max(timeout_s, DAY_S, math.ceil(OTHERS * hang_s + FIRST_S)) if hang_s else timeout_s
        self._stages = [range(first, first + num // stages) for first in range(0, num, num // stages)]
        self._seen = {rank: _Seen(Heartbeat(0, -1, "start"), now_s) for rank in range(num)}
        # when the first worker began its second update: its number of updates done, and the time
        self._first: tuple[int, float] | None = None
        self._compared_s = now_s
        self._compared: dict[int, Heartbeat] = {}
        self._slow = dict.fromkeys(range(num), 0)  # comparisons in a row in which this worker was slow

    def record(self, rank: int, heartbeat: Heartbeat, now_s: float) -> None:
        """Record the heartbeat of a worker."""
        if heartbeat.beats != self._seen[rank].heartbeat.beats:
            self._seen[rank] = _Seen(heartbeat, now_s)
            if self._first is None and heartbeat.activity == STEP:
                self._first = heartbeat.done, now_s

    @property
    def done(self) -> dict[int, int]:
        """Updates done, by rank."""
        return {rank: seen.heartbeat.done for rank, seen in self._seen.items()}

    def idle_s(self, ranks: Collection[int], now_s: float) -> float:
        """Seconds since the newest progress of any of these workers.

        0 if one of them is not in a step, because other work may take long.
        """
        if any(self._seen[rank].heartbeat.activity != STEP for rank in ranks):
            return 0.0
        return min((now_s - self._seen[rank].since_s for rank in ranks), default=0.0)

    def exclude_gap(self, gap_s: float) -> None:
        """Exclude these seconds from all times, because the driver itself was stopped."""
        self._seen = {rank: replace(seen, since_s=seen.since_s + gap_s) for rank, seen in self._seen.items()}
        self._first = self._first and (self._first[0], self._first[1] + gap_s)
        self._compared_s += gap_s

    def silent_s(self, ranks: Collection[int], now_s: float) -> float:
        """Seconds without progress of the worker that is silent longest; 0 if that is within the limit."""
        longest_s = max((now_s - self._seen[rank].since_s for rank in ranks), default=0.0)
        return longest_s if self.hang_s and longest_s > self.limit_s(ranks) else 0.0

    def limit_s(self, ranks: Collection[int]) -> float:
        """How long these workers may be silent: the highest limit of their activities, because workers wait for each
        other."""
        step_s = max(self.hang_s, STEP_TIMES * self.step_s())
        limits_s = {STEP: step_s, MEETING: self.meeting_s}
        longest_s = max(
            (limits_s.get(self._seen[rank].heartbeat.activity, step_s * OTHERS) for rank in ranks), default=0
        )
        return min(longest_s, self.timeout_s - FIRST_S)

    def step_s(self) -> float:
        """Mean time from the start of one update to the start of the next; 0 while it is unknown."""
        if self._first is None:
            return 0.0
        done, since_s = max((seen.heartbeat.done, seen.since_s) for seen in self._seen.values())
        return (since_s - self._first[1]) / (done - self._first[0]) if done > self._first[0] else 0.0

    def compare(self, now_s: float) -> tuple[float, Mapping[int, float]] | None:
        """Compare the compute times of the workers.

        A ratio compares a worker with the median worker of its stage. Returns the ratio of the slowest worker, and by
        rank the ratios of workers that have just been slow IN_A_ROW times. Returns None if the next comparison is not
        due, or too few updates are done.
        """
        heartbeats = {rank: seen.heartbeat for rank, seen in self._seen.items()}
        if len(heartbeats) < 2 or now_s - self._compared_s < EVERY_S:
            return None
        before = self._compared or heartbeats
        updates = {rank: now.timed_updates - before[rank].timed_updates for rank, now in heartbeats.items()}
        if self._compared and min(updates.values()) < FEWEST:
            return None
        self._compared_s, self._compared = now_s, heartbeats
        took_s = {
            rank: (now.compute_s - before[rank].compute_s) / max(1, updates[rank]) for rank, now in heartbeats.items()
        }
        median_s = {rank: median_low(took_s[other] for other in stage) for stage in self._stages for rank in stage}
        if not all(median_s.values()):
            return None
        ratios = {rank: each_s / median_s[rank] for rank, each_s in took_s.items()}
        for rank, ratio in ratios.items():
            self._slow[rank] = self._slow[rank] + 1 if ratio > SLOWER else 0
        return max(ratios.values()), {rank: ratios[rank] for rank, count in self._slow.items() if count == IN_A_ROW}

"""Whether workers get on: who has been silent for too long, who is slower than the others. Times are the driver's."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Final

STEP_TIMES: Final = 10  # a step that takes so many times the mean is a hang, where that is longer than the key says
OTHERS: Final = 6  # times the patience of a step: starts, first steps (they compile), evaluations, checkpoints, exports
EVERY_S: Final = 60.0  # between two comparisons of the workers' speed
SLOWER: Final = 1.5  # times the own time of the median worker
IN_A_ROW: Final = 3  # comparisons
FEWEST: Final = 10  # updates between two comparisons
DAY_S: Final = 86_400
FIRST_S: Final = 60.0  # that the group is ended before a collective call fails
MEETING: Final = "meeting the other workers"  # what it does before it builds its net
STEP: Final = "step"  # what a worker does in an update, other than the first one of its process


@dataclass(frozen=True)
class Heartbeat:
    """How far a worker is, as it says itself."""

    beats: int  # stages and updates that it has begun
    done: int  # updates; -1 before the first one begins
    doing: str  # STEP or another word
    own_s: float = 0.0  # of all updates so far: preparing rows and forward passes, without waiting for others
    timed: int = 0  # the updates of `own_s`


@dataclass(frozen=True)
class _Seen:
    sign: Heartbeat
    since_s: float  # when `beats` was first seen


class HeartbeatMonitor:
    """Signs of the workers of one group, and what follows from them."""

    def __init__(self, num: int, hang_s: float, now_s: float, stages: int = 1, timeout_s: int = 0) -> None:
        """`hang_s`: how long a step may last; 0: for ever. Workers do as much as others of their stage.

        `timeout_s` is how long they may take to meet, and a worker waits by itself for the others later, before its
        collective call fails. That does not say who is missing: with a watch it is `self.timeout_s`, longer than any
        patience.
        """
        self.hang_s, self.meeting_s = hang_s, max(hang_s, timeout_s)
        self.timeout_s = max(timeout_s, DAY_S, math.ceil(OTHERS * hang_s + FIRST_S)) if hang_s else timeout_s
        self._alike = [range(first, first + num // stages) for first in range(0, num, num // stages)]
        self._seen = {rank: _Seen(Heartbeat(0, -1, "start"), now_s) for rank in range(num)}
        self._first: tuple[int, float] | None = None  # updates done when a second one had begun, and when that was
        self._compared_s = now_s
        self._compared: dict[int, Heartbeat] = {}
        self._slow = dict.fromkeys(range(num), 0)  # comparisons in a row

    def hear(self, rank: int, sign: Heartbeat, now_s: float) -> None:
        """A worker has said this."""
        if sign.beats != self._seen[rank].sign.beats:
            self._seen[rank] = _Seen(sign, now_s)
            if self._first is None and sign.doing == STEP:
                self._first = sign.done, now_s

    @property
    def done(self) -> dict[int, int]:
        """Updates by rank."""
        return {rank: seen.sign.done for rank, seen in self._seen.items()}

    def idle_s(self, ranks: Collection[int], now_s: float) -> float:
        """For how long none of these workers has said anything new; 0 where not all of them are in a step: others may
        take long."""
        if any(self._seen[rank].sign.doing != STEP for rank in ranks):
            return 0.0
        return min((now_s - self._seen[rank].since_s for rank in ranks), default=0.0)

    def skip(self, gap_s: float) -> None:
        """So many seconds do not count: whoever listens was stopped."""
        self._seen = {rank: replace(seen, since_s=seen.since_s + gap_s) for rank, seen in self._seen.items()}
        self._first = self._first and (self._first[0], self._first[1] + gap_s)
        self._compared_s += gap_s

    def silent_s(self, ranks: Collection[int], now_s: float) -> float:
        """For how long the one of these workers has said nothing new that has said it longest ago; 0 where all may."""
        longest_s = max((now_s - self._seen[rank].since_s for rank in ranks), default=0.0)
        return longest_s if self.hang_s and longest_s > self.patience_s(ranks) else 0.0

    def patience_s(self, ranks: Collection[int]) -> float:
        """How long these workers may be silent, by what the one does that may be so longest: others wait for it."""
        step_s = max(self.hang_s, STEP_TIMES * self.step_s())
        by_work = {STEP: step_s, MEETING: self.meeting_s}
        wanted = (by_work.get(self._seen[rank].sign.doing, step_s * OTHERS) for rank in ranks)
        return min(max(wanted, default=0.0), self.timeout_s - FIRST_S)

    def step_s(self) -> float:
        """The mean time of an update so far, with what comes between two; 0 before any is known."""
        if self._first is None:
            return 0.0
        done, since_s = max((seen.sign.done, seen.since_s) for seen in self._seen.values())
        return (since_s - self._first[1]) / (done - self._first[0]) if done > self._first[0] else 0.0

    def compare(self, now_s: float) -> tuple[float, Mapping[int, float]] | None:
        """How many times slower than the median worker of its stage the slowest is, and so for each that has just been
        found slow.

        None where it is not time to compare, or too few updates were done.
        """
        signs = {rank: seen.sign for rank, seen in self._seen.items()}
        if len(signs) < 2 or now_s - self._compared_s < EVERY_S:
            return None
        before = self._compared or signs
        updates = {rank: sign.timed - before[rank].timed for rank, sign in signs.items()}
        if self._compared and min(updates.values()) < FEWEST:
            return None
        self._compared_s, self._compared = now_s, signs
        took_s = {rank: (signs[rank].own_s - before[rank].own_s) / max(1, count) for rank, count in updates.items()}
        usual_s = {rank: median_low(took_s[other] for other in alike) for alike in self._alike for rank in alike}
        if not all(usual_s.values()):
            return None
        times = {rank: own_s / usual_s[rank] for rank, own_s in took_s.items()}
        for rank, slower in times.items():
            self._slow[rank] = self._slow[rank] + 1 if slower > SLOWER else 0
        return max(times.values()), {rank: times[rank] for rank, count in self._slow.items() if count == IN_A_ROW}

"""Sums over the epochs of a number that repeats, such as the number of sequences of an epoch.

A position 10**9 steps ahead is found by arithmetic, without a walk over the epochs before it.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable
from time import monotonic
from typing import Final

log = logging.getLogger(__name__)

_PATIENCE: Final = 2.0  # seconds without a message


class EpochSums:
    """Sums of `number(epoch)`, which is positive and the same for the epochs e and e + `period`.

    It calls `number` for the epochs 0, 1, ... as far as needed, at most `period` times.

    >>> sums = EpochSums(lambda epoch: [10, 12, 11][epoch], period=3)
    >>> sums.before(3 * 10**9 + 1), sums.epoch_at(33 * 10**9 + 10), sums.epoch_at(33 * 10**9 + 9)
    (33000000010, 3000000001, 3000000000)
    """

    def __init__(self, number: Callable[[int], int], period: int, what: str = "numbers") -> None:
        self._number, self._period, self._what = number, period, what
        self._ends: list[int] = []  # sums up to and including each epoch of the first period

    def before(self, epoch: int) -> int:
        """The sum over all epochs before this one."""
        periods, rest = divmod(epoch, self._period)
        self._extend(lambda: len(self._ends) >= (self._period if periods else rest))
        return (periods * self._ends[-1] if periods else 0) + (self._ends[rest - 1] if rest else 0)

    def epoch_at(self, total: int) -> int:
        """The epoch in which the sum exceeds `total`: `before(epoch) <= total < before(epoch + 1)`."""
        self._extend(lambda: bool(self._ends) and self._ends[-1] > total)
        periods, rest = divmod(total, self._ends[-1]) if len(self._ends) == self._period else (0, total)
        return periods * self._period + bisect_right(self._ends, rest)

    def _extend(self, is_enough: Callable[[], bool]) -> None:
        """Add epochs of the first period until there are enough, or all."""
        since: float | None = monotonic()
        while len(self._ends) < self._period and not is_enough():
            self._ends.append(self._number(len(self._ends)) + (self._ends[-1] if self._ends else 0))
            if since and monotonic() - since > _PATIENCE:
                log.info("computing the %s of earlier epochs, of which %d differ", self._what, self._period)
                since = None
